// The wire format of calls between neighbors (neighbor_exchange.h), in the messages of a Pair.
//
// Every message but a chunk consists of parts with a Header each (frame.h), mostly of one part. A
// chunk consists of its bytes alone, and its tag names the transfer. Small data travel behind their
// header (kEager). Larger data are announced, and sent in chunks once the receiver asks for them
// (kReady). A receiver that knows what will come asks without waiting for the announcement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "transports/notification.h"

namespace dunlin::collective::neighbor {

enum class Kind : std::uint8_t {
  kEager,     // source to destination: the bytes follow
  kAnnounce,  // source to destination: `bytes` bytes are ready
  kReady,     // destination to source: send them, with `token` as the chunks' tag
  kReject,    // destination to source: size or type differ
  kUnwanted,  // destination to source: the call has failed for another reason
  kFailed,    // source to destination: its GPU has failed, and the data will not come
};

struct Header {
  std::uint64_t key = 0;       // hash of the call's name
  std::uint32_t sequence = 0;  // 1, 2, ... for each key, pair and direction
  std::uint32_t token = 0;     // chosen by the receiver: 1, 2, ...
  std::uint64_t bytes = 0;     // of the whole transfer
  double weight = 1;           // given by the source
  Kind kind{};
  std::uint8_t type = 0;  // DataType
  std::uint8_t is_reduction = 0;
  std::uint8_t padding = 0;
  std::uint32_t layout = 0;  // NeighborCall::layout
};
static_assert(sizeof(Header) == transport::kInlineBytes && std::is_trivially_copyable_v<Header>);

// Data of up to this size travel behind their header, and messages of several calls are at most
// this long. For larger data a round trip is worth its time, as they don't have to be stored at a
// receiver that isn't ready.
inline constexpr std::size_t kSmall = std::size_t{16} << 10;

// The number and size of the slots in a pair's ring of messages, the same at both ends.
inline constexpr std::uint32_t kMessageDepth = 16;
inline constexpr std::size_t kMessageBytes = sizeof(Header) + kSmall;

inline std::span<const std::byte> bytes_of(const Header& header) {
  return std::as_bytes(std::span(&header, 1));
}

inline Header header_of(std::span<const std::byte> message) {
  Header header;
  std::memcpy(&header, message.data(), sizeof header);
  return header;
}

}  // namespace dunlin::collective::neighbor
