// SeqlockUpdate: while it exists, the writer changes a part of a flight record. Its sequence number
// is odd meanwhile, and has grown by 2 afterwards. One writer at a time.
#pragma once

#include "runtime/flight/layout.h"

namespace dunlin::flight {

class SeqlockUpdate {
 public:
  explicit SeqlockUpdate(Word& sequence)
      : sequence_(sequence), before_(sequence.load(std::memory_order_relaxed)) {
    sequence_.store(before_ + 1, std::memory_order_relaxed);
    // Orders the store above before those of the update: a reader that sees one of these sees an
    // odd or a newer number afterwards.
    std::atomic_thread_fence(std::memory_order_release);
  }
  // A reader that sees this number sees the whole update. Readers map the file (reader.h).
  ~SeqlockUpdate() { sequence_.store(before_ + 2, std::memory_order_release); }
  SeqlockUpdate(const SeqlockUpdate&) = delete;
  SeqlockUpdate& operator=(const SeqlockUpdate&) = delete;

 private:
  Word& sequence_;
  const std::uint64_t before_;
};

}  // namespace dunlin::flight
