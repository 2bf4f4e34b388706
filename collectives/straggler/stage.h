// RingStage: the decisions of one rank about one chunk in the reduce-scatter of the straggler-aware
// ring (straggler_ring.h). It has no clock, no memory and no messages, so that a test can go
// through every interleaving.
//
// A chunk visits the ranks of the ring in order. The rank at position p of its path is the p-th
// that it visits, and the rank at the last position owns the sum. Each rank adds one contribution.
//
// Contributions are tokens. At any moment each one is in exactly one place: in the accumulator of a
// rank, in a message that a rank holds, or in a message on its way. Every event moves tokens, and
// none copies them. So each contribution is counted exactly once, in whatever order events occur
// and whichever route the messages take. A message therefore only says how many contributions it
// carries. All earlier contributions have arrived once the stage has seen `position` of them.
//
// A stage is in one of two states:
//   waiting     The rank's own contribution was not sent. This state ends when all earlier
//               contributions have arrived, or at release(): the predecessor is late, or says that
//               it has sent past this rank.
//   forwarding  The own contribution was sent. Whatever arrives is sent on.
//
// A late rank may send past its successor, straight to the rank behind it, and always tells the
// successor when it does. Only the rank at p can send past p + 1. So a waiting successor either
// receives all earlier contributions or is told not to wait. Every wait ends, whenever timeouts
// fire, and even if they never do.
#pragma once

#include <compare>
#include <cstdint>

namespace dunlin::collective {

class RingStage {
 public:
  enum class Route : std::uint8_t { kNone, kNext, kPast };
  struct Departure {
    Route route = Route::kNone;
    bool is_notice_due = false;  // tell the successor that the data went past it
  };

  RingStage() = default;
  // `position` is one of `size`.
  RingStage(std::uint32_t position, std::uint32_t size) : position_(position), size_(size) {}

  std::uint32_t position() const { return position_; }
  bool is_owner() const { return position_ + 1 == size_; }
  std::uint32_t seen() const { return seen_; }
  std::uint32_t accumulated() const { return accumulated_; }
  bool has_sent() const { return has_sent_; }
  // All earlier contributions have arrived here.
  bool is_complete() const { return seen_ == position_; }
  // Nothing has arrived, and the stage was not released.
  bool is_waiting_for_first() const { return seen_ == 0 && !may_send(); }

  // Events.

  // A message with `contributions` has arrived and is held. False: there can't be as many.
  bool arrive(std::uint32_t contributions) {
    if (contributions == 0 || contributions > position_ - seen_) return false;
    seen_ += contributions;
    held_ += contributions;
    return true;
  }
  // Held messages with `contributions` were added to the accumulator. Allowed at any time.
  void fold(std::uint32_t contributions) {
    held_ -= contributions;
    accumulated_ += contributions;
  }
  // Stops waiting. The owner of the chunk always waits.
  void release() { is_released_ = !is_owner(); }

  // Decisions.

  // Whether held messages should be added now: everything that this departure waits for is here.
  bool should_fold() const { return held_ > 0 && (is_owner() ? is_complete() : may_send()); }
  // Whether the accumulator should be sent, and no route was chosen yet.
  bool should_depart() const {
    return !is_owner() && route_ == Route::kNone && accumulated_ > 0 && held_ == 0 && may_send();
  }
  // Chooses the route. What arrives until take() is added and sent along.
  Departure choose(bool is_late) {
    const bool can_pass = position_ + 2 < size_;
    // A successor that was told not to wait only forwards what it gets: save that hop.
    route_ = can_pass && (is_late || has_told_) ? Route::kPast : Route::kNext;
    const bool is_notice_due = route_ == Route::kPast && !has_told_;
    has_told_ = has_told_ || is_notice_due;
    return {route_, is_notice_due};
  }
  Route route() const { return route_; }
  // The accumulator is sent and empty then. Returns how many contributions the message carries.
  std::uint32_t take() {
    const std::uint32_t contributions = accumulated_;
    accumulated_ = 0;
    has_sent_ = true;
    route_ = Route::kNone;
    return contributions;
  }
  // Whether this rank owns the chunk and its accumulator holds the sum.
  bool is_summed() const { return is_owner() && accumulated_ == size_; }

  auto operator<=>(const RingStage&) const = default;

 private:
  bool may_send() const { return has_sent_ || is_released_ || is_complete(); }

  std::uint32_t position_ = 0;
  std::uint32_t size_ = 1;
  std::uint32_t seen_ = 0;         // contributions of other ranks that have arrived
  std::uint32_t held_ = 0;         // those of them in messages that were not added yet
  std::uint32_t accumulated_ = 1;  // in the accumulator, the own one included until it is sent
  bool is_released_ = false;
  bool has_sent_ = false;  // the own contribution
  bool has_told_ = false;  // the successor knows that data go past it
  Route route_ = Route::kNone;
};

}  // namespace dunlin::collective
