// EventQueue: the events that are to happen, by time. It is a heap in which each entry has four
// children. That is shallower than a binary heap and keeps siblings in adjacent cache lines.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/clock.h"

namespace dunlin::transport::sim {

enum class EventKind : std::uint8_t {
  // Events of an operation:
  kRackUp,    // its first byte reaches the uplink of the sender's rack
  kRackDown,  // its first byte reaches the downlink of the receiver's rack
  kHead,      // its first byte reaches the receiver's ingress
  kLand,      // its last byte is at the receiver
  kPiece,     // a piece of it is at the receiver (hostile networks)
  kAnswer,    // the answer is back at the sender
  // Events of a rank:
  kWake,
  kLoss,  // it dies
  kNews,  // the others learn of its death
};

struct Event {
  TimePoint when;
  std::uint64_t number = 0;   // orders events at the same time: the one pushed first comes first
  std::uint32_t subject = 0;  // number of the operation or rank
  std::uint16_t piece = 0;
  EventKind kind{};

  bool is_before(const Event& other) const {
    return when != other.when ? when < other.when : number < other.number;
  }
};
static_assert(sizeof(Event) == 24);

class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }

  void push(TimePoint when, EventKind kind, std::uint32_t subject, std::uint16_t piece = 0) {
    const Event event{when, pushed_++, subject, piece, kind};
    std::size_t place = heap_.size();
    heap_.push_back(event);
    for (; place > 0; place = parent(place)) {
      if (!event.is_before(heap_[parent(place)])) break;
      heap_[place] = heap_[parent(place)];
    }
    heap_[place] = event;
  }

  Event pop() {
    const Event first = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
    return first;
  }

 private:
  static constexpr std::size_t kChildren = 4;
  static std::size_t parent(std::size_t place) { return (place - 1) / kChildren; }

  // Finds the place of `event`, starting from the root, which is free.
  void sink(const Event& event) {
    const std::size_t count = heap_.size();
    std::size_t place = 0;
    for (;;) {
      const std::size_t first = place * kChildren + 1;
      if (first >= count) break;
      const std::size_t end = std::min(first + kChildren, count);
      std::size_t least = first;
      for (std::size_t child = first + 1; child < end; ++child) {
        if (heap_[child].is_before(heap_[least])) least = child;
      }
      if (!heap_[least].is_before(event)) break;
      heap_[place] = heap_[least];
      place = least;
    }
    heap_[place] = event;
  }

  std::vector<Event> heap_;
  std::uint64_t pushed_ = 0;
};

}  // namespace dunlin::transport::sim
