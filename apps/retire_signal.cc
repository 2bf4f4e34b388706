#include "apps/retire_signal.h"

#include <csignal>

namespace dunlin {
namespace {

volatile std::sig_atomic_t is_asked_to_retire = 0;

void note_request(int) {
  is_asked_to_retire = 1;
}

void handle_sigterm(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

RetireSignal::RetireSignal() {
  is_asked_to_retire = 0;
  handle_sigterm(note_request, static_cast<int>(SA_RESETHAND | SA_RESTART));
}

RetireSignal::~RetireSignal() {
  handle_sigterm(SIG_DFL, 0);
}

bool RetireSignal::is_asked() const {
  return is_asked_to_retire != 0;
}

}  // namespace dunlin
