// Background threads. They have names for debuggers, and they block all signals, so that the
// program's own threads handle these.
#pragma once

#include <pthread.h>

#include <csignal>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/status.h"

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

// `name` has at most 15 characters. Fails when no thread can be created, for example because a
// container limits the number of threads.
template <typename Function>
Result<std::thread> start_service_thread(const char* name, Function function) {
  std::thread thread;
  try {
    const SignalsBlocked blocked;
    thread = std::thread(std::move(function));
  } catch (const std::system_error& error) {
    return Status::from_errno(std::string("starting the thread ") + name, error.code().value());
  }
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace dunlin::bootstrap
