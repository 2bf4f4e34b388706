// The messages between the ranks of a group. Each fits into a notification's cache line.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "runtime/bytes.h"

namespace dunlin::nccl {

// The sender has registered its memory for the group's n-th window.
struct Announcement {
  std::uint64_t window = 0;  // n, from 1
  std::uint64_t memory = 0;  // the number by which peers import it; 0: registering has failed
  std::uint64_t size = 0;    // bytes
};

// The receiver has to add `value` to the word at `offset` of its memory.
struct Addition {
  std::uint64_t window = 0;
  std::uint64_t offset = 0;  // a multiple of 8
  std::uint64_t value = 0;
};

// The last message: the sender leaves in good order.
struct Farewell {};

using GroupMessage = std::variant<Announcement, Addition, Farewell>;

Bytes encode(const GroupMessage& message);
// Nothing if the bytes are malformed.
std::optional<GroupMessage> decode_group_message(std::span<const std::byte> bytes);

}  // namespace dunlin::nccl
