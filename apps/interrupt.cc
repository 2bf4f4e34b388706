#include "apps/interrupt.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

namespace dunlin {
namespace {

// A signal handler can only access global state.
std::array<std::atomic<int>, NSIG> times_asked{};  // by signal
std::atomic<int> times_tolerated{0};
static_assert(std::atomic<int>::is_always_lock_free);

void note(int signal) {
  if (times_asked[static_cast<std::size_t>(signal)].fetch_add(1) < times_tolerated) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

Interrupt::Interrupt(std::vector<int> signals, int tolerated) : signals_(std::move(signals)) {
  for (auto& times : times_asked) times = 0;
  times_tolerated = tolerated;
  handle_by(note);
}

Interrupt::~Interrupt() {
  handle_by(SIG_DFL);
}

bool Interrupt::is_asked() const {
  return std::ranges::any_of(signals_, [this](int signal) { return is_asked(signal); });
}

bool Interrupt::is_asked(int signal) const {
  return times_asked[static_cast<std::size_t>(signal)] > 0;
}

void Interrupt::handle_by(void (*handler)(int)) const {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int signal : signals_) ::sigaction(signal, &action, nullptr);
}

}  // namespace dunlin
