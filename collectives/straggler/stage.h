// RingStage: what one rank does with one chunk in the reduce-scatter of the straggler-aware ring,
// and nothing else: no clock, no memory, no messages. straggler_ring.h has the whole; this is the
// part whose every interleaving is tested.
//
// A chunk visits the ranks of the ring in order; the rank at position p of its path is its p-th,
// and the one at the last position owns the sum. Each rank adds one contribution. Contributions are
// tokens: at any moment each of them is in exactly one place, in a rank's accumulator, in a message
// that is held there, or in a message under way, and every event moves tokens and copies none. So
// each is counted exactly once, whatever the order of events and whichever way they go. A message
// therefore needs to say only how many it carries; the stage knows that all earlier ones have come
// when it has seen `position` of them.
//
//   waiting     own contribution not sent. Ends when all earlier ones have come, or when release()
//               says not to wait (the predecessor is late, or says that it sent past us).
//   forwarding  own contribution sent: whatever comes is sent on.
//
// A late rank may send past its successor, straight to the rank behind it, and then tells the
// successor. Only the rank at p can send past p + 1, and it always tells: so a successor that waits
// either sees all earlier contributions, or is told not to wait. That is why nobody waits for ever,
// and it does not need time-outs, which may fire at any moment or never.
#pragma once

#include <compare>
#include <cstdint>

namespace dunlin::collective {

class RingStage {
 public:
  enum class Route : std::uint8_t { kNone, kNext, kPast };
  struct Departure {
    Route route = Route::kNone;
    bool is_notice_due = false;  // to the successor: what it waits for went past it
  };

  RingStage() = default;
  // One of `size` positions.
  RingStage(std::uint32_t position, std::uint32_t size) : position_(position), size_(size) {}

  std::uint32_t position() const { return position_; }
  bool is_owner() const { return position_ + 1 == size_; }
  std::uint32_t seen() const { return seen_; }
  std::uint32_t accumulated() const { return accumulated_; }
  bool has_sent() const { return has_sent_; }
  // All earlier contributions have come this way.
  bool is_complete() const { return seen_ == position_; }
  // Nothing has come, and nobody said that it won't.
  bool is_waiting_in_vain() const { return seen_ == 0 && !may_send(); }

  // Events.

  // A message with so many contributions has come, and is held. False: more than there can be.
  bool arrive(std::uint32_t contributions) {
    if (contributions == 0 || contributions > position_ - seen_) return false;
    seen_ += contributions;
    held_ += contributions;
    return true;
  }
  // Held messages with so many contributions were added to the accumulator. Allowed at any time.
  void fold(std::uint32_t contributions) {
    held_ -= contributions;
    accumulated_ += contributions;
  }
  // Don't wait any longer. Owners always wait.
  void release() { is_released_ = !is_owner(); }

  // Decisions.

  // Held messages should be folded now: what can be had for this departure is here.
  bool should_fold() const { return held_ > 0 && (is_owner() ? is_complete() : may_send()); }
  // The accumulator should depart, and no route was chosen yet.
  bool should_depart() const {
    return !is_owner() && route_ == Route::kNone && accumulated_ > 0 && held_ == 0 && may_send();
  }
  // Where it goes. What comes until take() is folded and goes along.
  Departure choose(bool is_late) {
    const bool can_pass = position_ + 2 < size_;
    // Who was once told to expect nothing only passes on what comes later: spare the hop.
    route_ = can_pass && (is_late || has_told_) ? Route::kPast : Route::kNext;
    const bool is_notice_due = route_ == Route::kPast && !has_told_;
    has_told_ = has_told_ || is_notice_due;
    return {route_, is_notice_due};
  }
  Route route() const { return route_; }
  // The accumulator is sent: how many contributions are in the message. It is empty then.
  std::uint32_t take() {
    const std::uint32_t contributions = accumulated_;
    accumulated_ = 0;
    has_sent_ = true;
    route_ = Route::kNone;
    return contributions;
  }
  // At the owner: the accumulator holds the sum.
  bool is_summed() const { return is_owner() && accumulated_ == size_; }

  auto operator<=>(const RingStage&) const = default;

 private:
  bool may_send() const { return has_sent_ || is_released_ || is_complete(); }

  std::uint32_t position_ = 0;
  std::uint32_t size_ = 1;
  std::uint32_t seen_ = 0;         // contributions of others that have come
  std::uint32_t held_ = 0;         // of those, in messages that are not folded yet
  std::uint32_t accumulated_ = 1;  // in the accumulator, ours included until it is sent
  bool is_released_ = false;
  bool has_sent_ = false;  // our own contribution
  bool has_told_ = false;  // the successor, that something goes past it
  Route route_ = Route::kNone;
};

}  // namespace dunlin::collective
