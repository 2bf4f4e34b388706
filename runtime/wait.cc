#include "runtime/wait.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <vector>

namespace dunlin {
namespace {

// Yields before sleep. A yield costs well under a microsecond, a sleep and a wake-up about ten, so
// that a short wait should end in this phase; beyond it, the core is better left to others.
constexpr long kYields = 200;

// A sleeper looks up this often at the latest, should a wake-up get lost.
constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::milliseconds(50);

}  // namespace

WaitPolicy WaitPolicy::from(const Config& config, int local_ranks, int cores) {
  const long spins = local_ranks > cores ? 0 : static_cast<long>(config.spin_iterations);
  switch (config.wait) {
    case WaitMode::kSpin:
      return {-1, -1};
    case WaitMode::kYield:
      return {spins, -1};
    case WaitMode::kEvent:
      return {0, 0};
    case WaitMode::kAuto:
      break;
  }
  return {spins, kYields};
}

void Waiter::poll_descriptors(TimePoint deadline) {
  const std::vector<int>& fds = progressor_.wait_fds();
  // Who waits in the middle of something that doesn't allocate has no more than a few.
  std::array<pollfd, 32> few;
  std::vector<pollfd> many(fds.size() > few.size() ? fds.size() : 0);
  const std::span<pollfd> polled =
      many.empty() ? std::span(few).first(fds.size()) : std::span(many);
  for (std::size_t i = 0; i < fds.size(); ++i) polled[i] = {fds[i], POLLIN, 0};
  const auto left = std::chrono::nanoseconds(deadline - clock_.now());
  const auto sleep = std::clamp(left, std::chrono::nanoseconds(0), kLongestSleep);
  const timespec timeout{0, static_cast<long>(sleep.count())};
  // Interrupted or failed: the caller polls again.
  (void)ppoll(polled.data(), polled.size(), &timeout, nullptr);
}

}  // namespace dunlin
