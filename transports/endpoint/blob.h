// The blob of an endpoint: where it listens, and the key that proves that a peer may connect.
//
// Layout, integers little-endian: magic number (4 bytes), version (1), number of addresses (1),
// port (2), key (32), fingerprint of the host (8), IPv4 addresses in network order (4 each).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/bytes.h"
#include "runtime/status.h"

namespace dunlin::transport::endpoint {

using Key = std::array<std::byte, 32>;

struct Blob {
  std::uint16_t port = 0;
  Key key{};
  std::uint64_t host = 0;                           // see host_fingerprint()
  std::vector<std::array<std::byte, 4>> addresses;  // of the interfaces; loopback is not listed

  Bytes encode() const;
  // kCorrupted if the bytes are not a blob of this version.
  static Result<Blob> decode(std::span<const std::byte> bytes);
  // The places to try, in this order, as HOST and the port. Loopback comes first on the same host,
  // and is left out elsewhere.
  std::vector<std::string> hosts() const;
};

// The same for all processes of one network namespace of one host; differs elsewhere with near
// certainty.
std::uint64_t host_fingerprint();

}  // namespace dunlin::transport::endpoint
