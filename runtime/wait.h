// Waiting: the one loop in which Dunlin's blocking calls wait.
//
// Everything that makes progress is polled; a Waiter polls it until a condition holds, first
// spinning, then giving the core away, then asleep on the descriptors of whatever can wake it.
// Where ranks outnumber cores, spinning steals the core from the peer that is waited for, so it is
// skipped.
#pragma once

#include <sched.h>

#include <cstddef>
#include <vector>

#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/status.h"

namespace dunlin {

// What a Waiter drives. Owner thread only.
class Progressor {
 public:
  virtual ~Progressor() = default;
  // Moves everything on; returns how many things happened. Never blocks.
  virtual std::size_t progress() = 0;
  // Prepares for sleep: from now until disarm(), anything that arrives makes a descriptor of
  // wait_fds() readable. False: something arrived already, or sleeping isn't possible; poll again.
  virtual bool arm() = 0;
  virtual void disarm() = 0;
  virtual const std::vector<int>& wait_fds() const = 0;
};

struct WaitPolicy {
  // Polls before the first yield, yields before the first sleep; -1: for ever.
  long spins = 0;
  long yields = 0;

  // What the configuration asks for; `local_ranks` share the usable cores of this host.
  static WaitPolicy from(const Config& config, int local_ranks, int cores);
};

// One turn of the core: tells the CPU that this is a spin loop.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Calls `poll()`, which returns how many things happened, until `is_over()` or for `grace`, in real
// time whatever clock the protocols have: the bound has to hold when that one stands still.
template <typename IsOver, typename Poll>
void poll_until(IsOver&& is_over, Duration grace, Poll&& poll) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + grace;
  while (!is_over() && clock.now() < deadline) {
    if (poll() == 0) sched_yield();
  }
}

class Waiter {
 public:
  Waiter(Progressor& progressor, const Clock& clock, WaitPolicy policy)
      : progressor_(progressor), clock_(clock), policy_(policy) {}

  // Drives progress until `ready()` returns anything but busy, and returns that; kDeadlineExceeded
  // without a text once `deadline` has passed (the caller knows what it waited for). `ready` must
  // not block; it is called after every progress(), and never again once it was not busy.
  template <typename Ready>
  Status until(Ready&& ready, TimePoint deadline) {
    long polls = 0;
    for (;;) {
      progressor_.progress();
      if (Status status = ready(); !status.is_busy()) return status;
      ++polls;
      if (policy_.spins < 0 || polls <= policy_.spins) {
        cpu_relax();
        // The clock costs as much as dozens of polls.
        if (polls % kPollsPerClock == 0 && clock_.now() >= deadline) return expired();
        continue;
      }
      if (clock_.now() >= deadline) return expired();
      if (policy_.yields < 0 || polls <= policy_.spins + policy_.yields) {
        sched_yield();
      } else if (Status status = sleep(ready, deadline); !status.is_busy()) {
        return status;
      }
    }
  }

  const Clock& clock() const { return clock_; }
  Progressor& progressor() const { return progressor_; }

 private:
  static constexpr long kPollsPerClock = 128;

  static Status expired() { return {Code::kDeadlineExceeded, ""}; }

  // What ready() said before it fell asleep.
  template <typename Ready>
  Status sleep(Ready& ready, TimePoint deadline) {
    if (!progressor_.arm()) {
      progressor_.disarm();
      sched_yield();
      return Status::busy();
    }
    // What arrived before arm() made no descriptor readable: look once more.
    Status status = ready();
    if (status.is_busy()) poll_descriptors(deadline);
    progressor_.disarm();
    return status;
  }
  void poll_descriptors(TimePoint deadline);

  Progressor& progressor_;
  const Clock& clock_;
  WaitPolicy policy_;
};

}  // namespace dunlin
