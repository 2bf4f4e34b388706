// What a message of the straggler-aware ring says of itself, in the 64 bits of its tag.
#pragma once

#include <cstdint>

namespace dunlin::collective {

struct RingTag {
  enum class Kind : std::uint8_t {
    kPartial,  // a sum of some contributions, on its way to the owner
    kSkipped,  // no data: what you wait for went past you
    kResult,   // the sum of all, on its way around
  };
  static constexpr std::uint32_t kSteps = 1u << 14;  // steps are counted modulo this
  static constexpr std::uint32_t kMostRanks = (1u << 16) - 1;

  Kind kind{};
  std::uint32_t step = 0;
  std::uint32_t flow = 0;
  std::uint32_t contributions = 0;

  std::uint64_t encode() const {
    return static_cast<std::uint64_t>(kind) << 62 | std::uint64_t{step % kSteps} << 48 |
           std::uint64_t{flow} << 16 | contributions;
  }
  static RingTag decode(std::uint64_t tag) {
    return {Kind(tag >> 62), static_cast<std::uint32_t>(tag >> 48) % kSteps,
            static_cast<std::uint32_t>(tag >> 16), static_cast<std::uint32_t>(tag & 0xffff)};
  }
};

}  // namespace dunlin::collective
