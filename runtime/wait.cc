#include "runtime/wait.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <vector>

namespace dunlin {
namespace {

// Yields before sleep. A yield costs well under a microsecond; a sleep and a wake-up cost about ten
// microseconds. So short waits should end in this phase. After it, other processes may use the
// core.
constexpr long kYields = 200;

// Spins end after this time. A yield that finds no other thread costs less than a poll of a socket,
// so that longer waits lose nothing by it; and whatever shares the core gets it soon.
constexpr std::chrono::nanoseconds kSpinTime = std::chrono::microseconds(50);

// With a core of its own, a thread does not sleep in waits that are shorter than this.
constexpr std::chrono::nanoseconds kYieldTime = std::chrono::milliseconds(1);

// A yield that takes longer than this has let another thread run.
constexpr std::chrono::nanoseconds kLongYield = std::chrono::microseconds(10);

// For how long a waiter does not spin after such a yield. If the time is too short, a spin in vain
// costs tens of microseconds. If it is too long, each poll costs a yield.
constexpr std::chrono::nanoseconds kSharedTime = std::chrono::milliseconds(100);

// A sleeping thread polls at least this often, in case a wake-up is lost.
constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::milliseconds(50);

}  // namespace

WaitPolicy WaitPolicy::from(const Config& config, int local_ranks, int cores) {
  const long spins = local_ranks > cores ? 0 : static_cast<long>(config.spin_iterations);
  switch (config.wait) {
    case WaitMode::kSpin:
      return {-1, -1};
    case WaitMode::kYield:
      return {0, -1};
    case WaitMode::kEvent:
      return {0, 0};
    case WaitMode::kAuto:
      break;
  }
  if (spins == 0) return {0, kYields};
  return {spins, kYields, kSpinTime, kYieldTime};
}

void Waiter::yield(TimePoint now) {
  sched_yield();
  if (policy_.spins <= 0) return;
  const TimePoint end = clock_.now();
  if (end - now < kLongYield) return;
  shares_core_ = true;
  shared_until_ = end + kSharedTime;
}

void Waiter::poll_descriptors(TimePoint deadline) {
  const std::vector<int>& fds = progressor_.wait_fds();
  // Calls that must not allocate have only a few descriptors.
  std::array<pollfd, 32> few;
  std::vector<pollfd> many(fds.size() > few.size() ? fds.size() : 0);
  const std::span<pollfd> polled =
      many.empty() ? std::span(few).first(fds.size()) : std::span(many);
  for (std::size_t i = 0; i < fds.size(); ++i) polled[i] = {fds[i], POLLIN, 0};
  const auto left = std::chrono::nanoseconds(deadline - clock_.now());
  const auto sleep = std::clamp(left, std::chrono::nanoseconds(0), kLongestSleep);
  const timespec timeout{0, static_cast<long>(sleep.count())};
  // When it fails or is interrupted, the caller polls again.
  (void)ppoll(polled.data(), polled.size(), &timeout, nullptr);
}

}  // namespace dunlin
