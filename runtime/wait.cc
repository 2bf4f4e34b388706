#include "runtime/wait.h"

#include <poll.h>

#include <algorithm>
#include <chrono>

namespace dunlin {
namespace {

// Yields before sleep. A yield costs well under a microsecond, a sleep and a wake-up about ten, so
// that a short wait should end in this phase; beyond it, the core is better left to others.
constexpr long kYields = 200;

// A sleeper looks up this often at the latest, should a wake-up get lost.
constexpr auto kLongestSleep = std::chrono::milliseconds(50);

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
  std::vector<pollfd> polled;
  for (const int fd : progressor_.wait_fds()) polled.push_back({fd, POLLIN, 0});
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock_.now());
  const auto timeout = std::clamp(left, std::chrono::milliseconds(0), kLongestSleep);
  // Interrupted or failed: the caller polls again.
  (void)poll(polled.data(), polled.size(), static_cast<int>(timeout.count()));
}

}  // namespace dunlin
