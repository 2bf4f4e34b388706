#include "apps/retire_signal.h"

#include <atomic>
#include <csignal>

namespace dunlin {
namespace {

// A handler may store to it, as it is free of locks.
std::atomic<bool> is_asked_to_retire{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void note_request(int) {
  is_asked_to_retire.store(true, std::memory_order_relaxed);
}

void handle_sigterm(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

RetireSignal::RetireSignal() {
  is_asked_to_retire.store(false, std::memory_order_relaxed);
  handle_sigterm(note_request, static_cast<int>(SA_RESETHAND | SA_RESTART));
}

RetireSignal::~RetireSignal() {
  handle_sigterm(SIG_DFL, 0);
}

bool RetireSignal::is_asked() const {
  return is_asked_to_retire.load(std::memory_order_relaxed);
}

}  // namespace dunlin
