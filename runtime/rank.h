// Rank: the number of a process in its job, 0 <= rank < size. Default-constructed: -1, no rank.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace dunlin {

class Rank {
 public:
  constexpr Rank() = default;
  constexpr explicit Rank(int value) : value_(value) {}
  constexpr int value() const { return value_; }
  // The value as an index into arrays by rank.
  constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }
  constexpr auto operator<=>(const Rank&) const = default;

 private:
  std::int32_t value_ = -1;
};

}  // namespace dunlin

template <>
struct std::hash<dunlin::Rank> {
  std::size_t operator()(dunlin::Rank rank) const noexcept { return rank.index(); }
};
