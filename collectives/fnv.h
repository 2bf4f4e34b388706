// Fnv: FNV-1a, 64 bits, one number after another: what all ranks of an operation have to agree
// about, or know it by, in one word. Of a job's own data: nothing that withstands an adversary.
#pragma once

#include <cstdint>

namespace dunlin::collective {

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

}  // namespace dunlin::collective
