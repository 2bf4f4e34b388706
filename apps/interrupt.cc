#include "apps/interrupt.h"

#include <signal.h>

#include <atomic>
#include <utility>

namespace dunlin {
namespace {

// A signal handler can only access global state.
std::atomic<int> times_asked{0};
std::atomic<int> times_tolerated{0};
static_assert(std::atomic<int>::is_always_lock_free);

void note(int signal) {
  if (times_asked.fetch_add(1) < times_tolerated) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

Interrupt::Interrupt(std::vector<int> signals, int tolerated) : signals_(std::move(signals)) {
  times_asked = 0;
  times_tolerated = tolerated;
  handle_by(note);
}

Interrupt::~Interrupt() {
  handle_by(SIG_DFL);
}

bool Interrupt::is_asked() const {
  return times_asked > 0;
}

void Interrupt::handle_by(void (*handler)(int)) const {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int signal : signals_) ::sigaction(signal, &action, nullptr);
}

}  // namespace dunlin
