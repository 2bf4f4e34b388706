// What a rank publishes of its transports: their addresses, and the descriptors of its regions
// (fabric.h). Each holds a part for every transport of the rank, which that transport alone reads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/bytes.h"
#include "runtime/status.h"

namespace dunlin::transport {

struct PublishedAddress {
  std::string transport;
  bool is_on_demand = false;
  Bytes address;  // the transport's outline if is_on_demand
};

struct PublishedAddresses {
  std::vector<PublishedAddress> of;

  // Null: the rank does not have this transport.
  const PublishedAddress* find(std::string_view transport) const;
  Bytes encode() const;
  static Result<PublishedAddresses> decode(std::span<const std::byte> bytes);
};

// A request to open a transport that opens on demand. Comes by the bootstrap's mail.
struct OpenRequest {
  std::string transport;
  Bytes outline;  // of the transport that asks

  Bytes encode() const;
  static Result<OpenRequest> decode(std::span<const std::byte> bytes);
};

struct RegionDescriptor {
  std::uint64_t size = 0;
  std::vector<std::pair<std::string, Bytes>> parts;  // by transport
  std::string refusals;                              // why the other transports have none

  // Null: the region is not registered with this transport.
  const Bytes* find(std::string_view transport) const;
  Bytes encode() const;
  static Result<RegionDescriptor> decode(std::span<const std::byte> bytes);
};

}  // namespace dunlin::transport
