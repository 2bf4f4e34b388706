// What travels between neighbours (neighbor_exchange.h), in the messages of a Pair.
//
// Every message but a chunk is made of parts with a Header each (frame.h), mostly of one; a chunk
// is its bytes alone and names the transfer in its tag. Small data travel behind their header
// (kEager). Larger ones are announced, and come in chunks once the receiver has said that it wants
// them (kReady), which one that knows what will come says without having heard the announcement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "collectives/fnv.h"
#include "transports/notification.h"

namespace dunlin::collective::neighbor {

enum class Kind : std::uint8_t {
  kEager,     // source to destination: the bytes follow
  kAnnounce,  // source to destination: so many bytes are here
  kReady,     // destination to source: send them; `token` is in the chunks' tags
  kReject,    // destination to source: the sizes or types differ
  kUnwanted,  // destination to source: my call has failed, for another reason
};

struct Header {
  std::uint64_t key = 0;       // of the operation's name
  std::uint32_t sequence = 0;  // 1, 2, ... for each key, pair and direction
  std::uint32_t token = 0;     // the receiver's: 1, 2, ...
  std::uint64_t bytes = 0;     // of the whole transfer
  double weight = 1;           // the source's
  Kind kind{};
  std::uint8_t type = 0;  // DataType
  std::uint8_t is_reduction = 0;
  std::uint8_t padding = 0;
  std::uint32_t layout = 0;  // the caller's
};
static_assert(sizeof(Header) == transport::kInlineBytes && std::is_trivially_copyable_v<Header>);

// What one message holds besides its header: data of up to this size travel behind it, and parts of
// several calls together. Larger data are worth a round trip, so as not to lie about at a receiver
// that isn't ready.
inline constexpr std::size_t kSmall = std::size_t{16} << 10;

// The ring of messages of a pair, the same at both ends: slots, and their size.
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

// Operations of the same name meet: no job's names will ever exhaust 64 bits.
constexpr std::uint64_t key_of(std::string_view name) {
  Fnv key;
  for (const char letter : name) key.add(static_cast<std::uint8_t>(letter));
  return key.value();
}

}  // namespace dunlin::collective::neighbor
