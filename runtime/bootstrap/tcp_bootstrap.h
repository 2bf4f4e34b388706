// TcpBootstrap: a rank's connection to the coordinator, and the monitor thread that serves it.
//
// The monitor thread does all I/O. It sends heartbeats and the messages of callers, and it receives
// replies and notices. It also watches the processes of local peers, so that it detects their end
// even while the coordinator is busy.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/bootstrap/client.h"
#include "runtime/bootstrap/contact.h"
#include "runtime/bootstrap/coordinator_search.h"
#include "runtime/bootstrap/pid_watch.h"
#include "runtime/bootstrap/witness.h"

namespace dunlin::bootstrap {

class TcpBootstrap final : public BootstrapClient {
 public:
  static Result<std::unique_ptr<Bootstrap>> join(JoinPlan plan);
  ~TcpBootstrap() override;
  void leave() noexcept override;

 private:
  TcpBootstrap(JoinPlan plan, AuthenticatedSocket connection, Fd wake);

  void transmit(const Message& message) override;

  // The monitor thread.
  void monitor();
  void wait_for_events(TimePoint until);
  void take(Message message);
  void on_end(const Contact::End& end);
  void wake();

  JoinPlan plan_;
  const Duration leave_timeout_;
  Fd wake_;
  PidWatch pids_;    // used by the monitor thread only
  Contact contact_;  // used by the monitor thread only, once it runs
  Witness witness_;  // used by the monitor thread only
  int listener_ = 0;

  std::mutex outbox_mutex_;
  std::vector<Message> outbox_;
  bool is_leaving_ = false;  // under outbox_mutex_
  std::atomic<bool> announces_leave_{false};
  bool has_left_ = false;  // used by the calling thread only
  std::thread monitor_;
};

}  // namespace dunlin::bootstrap
