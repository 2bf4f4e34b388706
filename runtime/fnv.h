// Fnv: the 64-bit FNV-1a hash of a sequence of numbers. Ranks exchange such hashes to check that
// their arguments agree. The hash offers no protection against forged input.
#pragma once

#include <cstdint>
#include <string_view>

namespace dunlin {

class Fnv {
 public:
  constexpr Fnv& add(std::uint64_t value) {
    hash_ = (hash_ ^ value) * 0x100000001b3u;
    return *this;
  }
  constexpr std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

// The hash of a name. Jobs have so few names that a chance collision can be neglected.
constexpr std::uint64_t hash_of(std::string_view name) {
  Fnv hash;
  for (const char character : name) hash.add(static_cast<std::uint8_t>(character));
  return hash.value();
}

}  // namespace dunlin
