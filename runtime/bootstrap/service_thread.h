// Background threads. They have names for debuggers, and they block all signals, so that the
// program's own threads handle these.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace dunlin::bootstrap {

// Blocks all signals for the calling thread until this is destroyed. Threads that it starts in the
// meantime keep them blocked.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// `name` has at most 15 characters. Throws std::system_error when no thread can be created.
template <typename Function>
std::thread start_service_thread(const char* name, Function function) {
  std::thread thread;
  {
    const SignalsBlocked blocked;
    thread = std::thread(std::move(function));
  }
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace dunlin::bootstrap
