// Session::Stay: how the methods of a Session hold its lock. Included by its sources only.
#pragma once

#include "bindings/session/session.h"

namespace dunlin::binding {

// The number of calls that this thread is in. It is not zero in a signal handler that runs during a
// wait.
inline thread_local int stays_of_thread = 0;

class Session::Stay {
 public:
  explicit Stay(Session& session) : session_(session) {
    session_.blocked_.fetch_add(1, std::memory_order_relaxed);
    session_.enter();
    ++session_.stays_;
    ++stays_of_thread;
  }
  ~Stay() {
    --session_.stays_;
    --stays_of_thread;
    step_out();
  }
  // Calls `call()` without the lock, as if this thread were outside; only shutdown() waits for it.
  template <typename Call>
  auto aside(Call&& call) {
    step_out();
    auto result = call();
    session_.blocked_.fetch_add(1, std::memory_order_relaxed);
    session_.enter();
    return result;
  }
  // Does what aside() does for a thread that has given the lock up already.
  template <typename Call>
  auto further_aside(Call&& call) {
    // Without the lock it is unknown whether there is work: the server finds out.
    call_server(true);
    auto result = call();
    session_.blocked_.fetch_add(1, std::memory_order_relaxed);
    return result;
  }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;

 private:
  void step_out() {
    const bool leaves_work = session_.has_work();
    session_.leave();
    call_server(leaves_work);
  }
  void call_server(bool leaves_work) {
    {
      const std::lock_guard guard(session_.server_mutex_);
      session_.has_work_ = session_.has_work_ || leaves_work;
      // The server is idle while other threads are in calls; the last one to leave calls it.
      const bool is_last = session_.blocked_.fetch_sub(1, std::memory_order_relaxed) == 1;
      if (!is_last || !session_.has_work_) return;
    }
    session_.server_news_.notify_one();
  }

  Session& session_;
};

}  // namespace dunlin::binding
