// Threads that serve in the background: named for debuggers, deaf to signals, which stay with the
// program's own threads.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace dunlin::bootstrap {

// `name` has at most 15 characters.
template <typename Function>
std::thread start_service_thread(const char* name, Function function) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(function));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace dunlin::bootstrap
