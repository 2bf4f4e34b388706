// Threads that serve in the background: named for debuggers, deaf to signals, which stay with the
// program's own threads.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace dunlin::bootstrap {

// The calling thread hears no signals as long as this is there; nor do threads that it starts,
// ever.
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

// `name` has at most 15 characters. Throws std::system_error where there can't be one more thread.
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
