// Waiting: all blocking calls of Dunlin wait in Waiter::until().
//
// A Waiter calls progress() until a condition holds. It first spins, then yields the core between
// the calls, then sleeps until a file descriptor becomes readable. It spins for some tens of
// microseconds at most. It does not spin when the peer that it waits for may need this core: when
// ranks outnumber cores, or for a while after a yield took so long that another thread must have
// run meanwhile.
#pragma once

#include <sched.h>

#include <cstddef>
#include <vector>

#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/status.h"

namespace dunlin {

// An object whose progress() a Waiter calls. Owner thread only.
class Progressor {
 public:
  virtual ~Progressor() = default;
  // Makes progress without blocking, and returns the number of events that it handled.
  virtual std::size_t progress() = 0;
  // Prepares for sleep: from now on until disarm(), any arrival makes a descriptor of wait_fds()
  // readable. Returns false when something has arrived already or sleep is not possible; then the
  // caller polls again.
  virtual bool arm() = 0;
  virtual void disarm() = 0;
  virtual const std::vector<int>& wait_fds() const = 0;
};

struct WaitPolicy {
  // Polls before the first yield, and yields before the first sleep; -1: no limit.
  long spins = 0;
  long yields = 0;
  // The spins end earlier after this time, which matters where a poll is expensive.
  Duration spin_time = Duration::max();
  // A wait does not sleep before this time has passed, unless something else wants the core.
  Duration yield_time = Duration::zero();

  // The policy for `local_ranks` ranks on this host, which share `cores` cores.
  static WaitPolicy from(const Config& config, int local_ranks, int cores);
};

// Tells the CPU that this is a spin loop.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Calls `poll()`, which returns the number of events that it handled, until `is_over()` returns
// true or `grace` has passed. `grace` is real time, as the clock of a protocol may stand still.
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

  // Calls progress() and then `ready()` until the latter returns a Status other than busy, and
  // returns that Status. `ready` must not block, and is not called again afterwards. Returns
  // kDeadlineExceeded without a text when `deadline` has passed; the caller adds what it waited
  // for.
  template <typename Ready>
  Status until(Ready&& ready, TimePoint deadline) {
    return until(ready, deadline, [](TimePoint) {});
  }
  // The same. `note(now)` is called whenever the clock was read and the wait goes on.
  template <typename Ready, typename Note>
  Status until(Ready&& ready, TimePoint deadline, Note&& note) {
    long spins = shares_core() ? 0 : policy_.spins;
    TimePoint began{};  // set by the first reading of the clock, as short waits read none
    for (long polls = 1;; ++polls) {
      progressor_.progress();
      if (Status status = ready(); !status.is_busy()) return status;
      const bool is_spin = spins < 0 || polls <= spins;
      if (is_spin) cpu_relax();
      if (is_spin && polls % kPollsPerClock != 0) continue;
      const TimePoint now = clock_.now();
      if (now >= deadline) return expired();
      if (began == TimePoint{}) began = now;
      note(now);
      if (is_spin) {
        if (now - began >= policy_.spin_time) spins = polls;
        continue;
      }
      const bool is_early = !shares_core_ && now - began < policy_.yield_time;
      if (policy_.yields < 0 || polls <= spins + policy_.yields || is_early) {
        yield(now);
      } else if (Status status = sleep(ready, deadline); !status.is_busy()) {
        return status;
      }
    }
  }

  // True for a while after another thread has run on this core during a yield. Then the owner
  // should not spin elsewhere either.
  bool shares_core() {
    if (shares_core_ && clock_.now() >= shared_until_) shares_core_ = false;
    return shares_core_;
  }

  const Clock& clock() const { return clock_; }
  Progressor& progressor() const { return progressor_; }

 private:
  // Reading the clock costs as much as some polls of shared memory.
  static constexpr long kPollsPerClock = 64;

  static Status expired() { return {Code::kDeadlineExceeded, ""}; }
  // Gives the core to another thread, and notices whether there was one.
  void yield(TimePoint now);

  // Returns the result of the last ready(), which is called before the sleep.
  template <typename Ready>
  Status sleep(Ready& ready, TimePoint deadline) {
    if (!progressor_.arm()) {
      progressor_.disarm();
      sched_yield();
      return Status::busy();
    }
    // An arrival before arm() has made no descriptor readable: check once more.
    Status status = ready();
    if (status.is_busy()) poll_descriptors(deadline);
    progressor_.disarm();
    return status;
  }
  void poll_descriptors(TimePoint deadline);

  Progressor& progressor_;
  const Clock& clock_;
  WaitPolicy policy_;
  bool shares_core_ = false;
  TimePoint shared_until_{};
};

}  // namespace dunlin
