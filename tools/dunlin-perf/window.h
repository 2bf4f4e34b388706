// Window: keeps a number of operations outstanding, as ib_write_bw's transmit depth does: the next
// one is posted as soon as the oldest has completed. Whoever makes one destroys it after the lanes,
// because what is pending when something fails completes when they close. Owner thread only.
#pragma once

#include <algorithm>
#include <memory>

#include "tools/dunlin-perf/pair.h"

namespace dunlin::perf {

class Window {
 public:
  // At most `deepest` at a time.
  explicit Window(std::uint32_t deepest)
      : slots_(std::make_unique<transport::Completion[]>(deepest)), depth_(deepest) {}

  // Nothing may be outstanding.
  void resize(std::uint32_t depth) {
    depth_ = depth;
    next_ = outstanding_ = 0;
  }

  // `operation` takes a Completion* and returns a Status, as the lane's functions do.
  template <typename Operation>
  Status post(Pair& pair, Operation&& operation) {
    // Slots are used in turns, so that the next one is also the oldest.
    transport::Completion& slot = slots_[next_];
    if (outstanding_ == depth_) DUNLIN_TRY(retire(pair, slot));
    slot.reset();
    DUNLIN_TRY(pair.job().post(pair.partner(), [&] { return operation(&slot); }));
    ++outstanding_;
    if (++next_ == depth_) next_ = 0;
    return Status::ok();
  }
  // Until everything has completed.
  Status drain(Pair& pair) {
    while (outstanding_ != 0) {
      const std::uint32_t behind = next_ < outstanding_ ? depth_ : 0;
      DUNLIN_TRY(retire(pair, slots_[next_ + behind - outstanding_]));
    }
    return Status::ok();
  }

 private:
  Status retire(Pair& pair, const transport::Completion& slot) {
    if (!slot.is_done()) {
      DUNLIN_TRY(pair.job().await(pair.partner(), "a completion", [&] { return slot.is_done(); }));
    }
    --outstanding_;
    return slot.status();
  }

  std::unique_ptr<transport::Completion[]> slots_;
  std::uint32_t depth_;
  std::uint32_t next_ = 0;
  std::uint32_t outstanding_ = 0;
};

// `depth`: what was asked for; 0: nothing, then as ib_write_bw has by default.
inline std::uint32_t window_depth(std::uint32_t depth, std::size_t size) {
  constexpr std::size_t kDepth = 128;
  // Beyond what any wire holds; a slow one is drained within the deadlines.
  constexpr std::size_t kBytes = 8 << 20;
  if (depth != 0) return depth;
  return static_cast<std::uint32_t>(
      std::clamp<std::size_t>(kBytes / std::max<std::size_t>(size, 1), 2, kDepth));
}

}  // namespace dunlin::perf
