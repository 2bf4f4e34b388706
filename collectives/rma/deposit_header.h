// DepositHeader: what precedes the tensor of a deposit, in a message and in the buffers of a mapped
// edge (mapped_edge.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "transports/notification.h"

namespace dunlin::collective {

enum class DepositKind : std::uint32_t {
  kPut = 1,         // replaces what is in the buffer
  kAccumulate = 2,  // is added to it
};

// Several deposits that were merged have the header of one. It is a put if one of them was. Numbers
// are little-endian, as x86-64 and AArch64 under Linux store them.
struct DepositHeader {
  static constexpr std::uint32_t kVersion = 1;
  std::uint32_t version = kVersion;  // of a message; in a mapped edge 0, since nobody reads it
  DepositKind kind = DepositKind::kPut;
  std::uint64_t deposits = 0;  // how many were merged into this one
  double p = 0;                // push-sum's weight, treated as an element of the tensor
  std::byte reserved[40] = {};
};
static_assert(sizeof(DepositHeader) == transport::kCacheLine &&
              std::is_trivially_copyable_v<DepositHeader>);

constexpr std::size_t deposit_bytes(std::size_t tensor_bytes) {
  return sizeof(DepositHeader) + tensor_bytes;
}

}  // namespace dunlin::collective
