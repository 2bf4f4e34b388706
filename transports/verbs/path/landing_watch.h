// LandingWatch: finds out when the peer has carried out the landing notes before a flush.
//
// A landing note tells the owner of a region of GPU memory which bytes a put has written; the owner
// then copies or flushes them, and counts the note in a word behind its mailbox. A flush reads that
// word into registered memory here. While the word does not cover all notes before the flush, the
// flush cannot complete, and the lane reads the word again every kLandingInterval. Owner thread
// only.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/clock.h"

namespace dunlin::transport::verbs {

class Engine;
class SendWindow;
struct Operation;

class LandingWatch {
 public:
  explicit LandingWatch(Engine& engine) : engine_(engine) {}

  // `word`: where flushes read the peer's count to.
  void watch(std::uint64_t* word) { word_ = word; }
  // Number of the notification that is the last landing note of this connection; 0: there is none.
  std::uint64_t last_note() const { return last_note_; }
  void note_sent(std::uint64_t number) { last_note_ = number; }
  // Begins anew over another connection.
  void restart() { last_note_ = 0; }

  // Whether the peer has carried out the landing notes up to number `awaited`. The device writes
  // the word.
  bool has_landed(std::uint64_t awaited) const {
    return awaited == 0 || std::atomic_ref(*word_).load(std::memory_order_acquire) >= awaited;
  }
  // Whether a flush waits for landing notes only. While one does, the engine steps lanes
  // more often, and no thread sleeps.
  void set_waiting(bool is_waiting) {
    if (is_waiting != is_waiting_) change_waiting(is_waiting);
  }
  // Whether to read the word again now for the flush at the head of the ring: the interval has
  // passed, and the last read has come back.
  bool is_poll_due(TimePoint now, const Operation& flush, const SendWindow& window);
  // This work request reads the word.
  void note_poll(std::uint64_t request) { last_poll_ = request; }

 private:
  void change_waiting(bool is_waiting);

  Engine& engine_;
  std::uint64_t* word_ = nullptr;
  std::uint64_t last_note_ = 0;
  std::uint64_t last_poll_ = 0;  // work request of the last read beside the flush's own
  bool is_waiting_ = false;
  TimePoint next_poll_{};
};

}  // namespace dunlin::transport::verbs
