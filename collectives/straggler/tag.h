// RingTag: what a message of the straggler-aware ring says about itself, in the 64 bits of its tag.
#pragma once

#include <cstdint>

namespace dunlin::collective {

struct RingTag {
  enum class Kind : std::uint8_t {
    kPartial,  // a sum of some contributions, on its way to the chunk's owner
    kSkipped,  // no data: what the receiver waits for was sent past it
    kResult,   // the sum of all contributions, on its way around the ring
  };
  static constexpr std::uint32_t kSteps = 1u << 14;  // steps are counted modulo this
  static constexpr std::uint32_t kMostRanks = (1u << 16) - 1;

  Kind kind{};
  std::uint32_t step = 0;
  std::uint32_t flow = 0;
  std::uint32_t contributions = 0;

  // A tag from a peer may name no kind.
  bool is_known() const { return kind <= Kind::kResult; }

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
