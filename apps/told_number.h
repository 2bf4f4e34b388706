// Numbers that one rank of a job tells the others, each the whole of a message.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <span>
#include <string_view>

#include "runtime/bytes.h"
#include "runtime/status.h"

namespace dunlin {

// `what` names the number in the error, which is kCorrupted.
template <std::integral T>
Result<T> told_number(std::span<const std::byte> message, std::string_view what) {
  ByteReader reader(message);
  const T number = reader.number<T>();
  if (reader.at_end()) return number;
  return Status(Code::kCorrupted, fmt::format("a peer's {} takes {} bytes instead of {}", what,
                                              message.size(), sizeof number));
}

}  // namespace dunlin
