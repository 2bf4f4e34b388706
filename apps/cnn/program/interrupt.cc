#include "apps/cnn/program/interrupt.h"

#include <signal.h>

#include <atomic>

namespace dunlin::cnn {
namespace {

// Under dunlin-run, a Ctrl-C comes twice: from the terminal and from dunlin-run.
constexpr int kTolerated = 2;

// A signal handler can only access global state.
std::atomic<int> times_asked{0};
static_assert(std::atomic<int>::is_always_lock_free);

void note(int signal) {
  if (times_asked.fetch_add(1) < kTolerated) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void handle_by(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt() {
  times_asked = 0;
  handle_by(note);
}

Interrupt::~Interrupt() {
  handle_by(SIG_DFL);
}

bool Interrupt::is_asked() const {
  return times_asked > 0;
}

}  // namespace dunlin::cnn
