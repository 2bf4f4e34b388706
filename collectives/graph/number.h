// Parses whole numbers in graph specs and edge lists: decimal digits only, no sign, no blanks.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>

namespace dunlin::collective {

template <std::integral T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || text.front() == '-' || error != std::errc{} || stop != end) {
    return std::nullopt;
  }
  return value;
}

}  // namespace dunlin::collective
