// Window: keeps a number of operations outstanding, as the transmit depth of ib_write_bw does. The
// next operation is posted as soon as the oldest has completed. It must be destroyed after the
// lanes: operations that are outstanding after a failure complete when the lanes close. Owner
// thread only.
#pragma once

#include <algorithm>
#include <memory>

#include "tools/dunlin-perf/benchmarks/pair.h"

namespace dunlin::perf {

class Window {
 public:
  // `deepest`: the most operations at a time.
  explicit Window(std::uint32_t deepest)
      : slots_(std::make_unique<transport::Completion[]>(deepest)), depth_(deepest) {}

  // No operation may be outstanding.
  void resize(std::uint32_t depth) {
    depth_ = depth;
    next_ = outstanding_ = 0;
  }

  // `operation` takes a Completion* and returns a Status, as the functions of Lane do.
  template <typename Operation>
  Status post(Pair& pair, Operation&& operation) {
    // Slots are used in turns, so the next one is also the oldest.
    transport::Completion& slot = slots_[next_];
    if (outstanding_ == depth_) DUNLIN_TRY(retire(pair, slot));
    slot.reset();
    DUNLIN_TRY(pair.job().post(pair.peer(), [&] { return operation(&slot); }));
    ++outstanding_;
    if (++next_ == depth_) next_ = 0;
    return Status::ok();
  }
  // Returns when all operations have completed.
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
      DUNLIN_TRY(pair.job().await(pair.peer(), "a completion", [&] { return slot.is_done(); }));
    }
    --outstanding_;
    return slot.status();
  }

  std::unique_ptr<transport::Completion[]> slots_;
  std::uint32_t depth_;
  std::uint32_t next_ = 0;
  std::uint32_t outstanding_ = 0;
};

// The depth to use. `depth`: the requested one; 0: none, then that of ib_write_bw by default.
inline std::uint32_t window_depth(std::uint32_t depth, std::size_t size) {
  constexpr std::size_t kDepth = 128;
  // More than any network holds in transit. A slow network still drains it within the deadlines.
  constexpr std::size_t kBytes = 8 << 20;
  if (depth != 0) return depth;
  return static_cast<std::uint32_t>(
      std::clamp<std::size_t>(kBytes / std::max<std::size_t>(size, 1), 2, kDepth));
}

}  // namespace dunlin::perf
