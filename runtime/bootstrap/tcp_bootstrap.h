// TcpBootstrap: a rank's connection to the coordinator and the monitor thread that lives on it.
//
// The monitor does all I/O: it sends heartbeats and what callers hand it, receives replies and
// notices, and watches the processes of local peers, so that their end is noticed even while the
// coordinator is busy.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/bootstrap/client.h"
#include "runtime/bootstrap/coordinator.h"
#include "runtime/bootstrap/handshake.h"
#include "runtime/bootstrap/pid_watch.h"

namespace dunlin::bootstrap {

// How to join, as the launcher's variables say.
struct JoinPlan {
  JobInfo job;                        // job_id may be empty: the coordinator names the job
  std::vector<Endpoint> coordinator;  // places where it may be; the first that answers is taken
  std::string secret;
  Rank host{0};                         // who runs the coordinator; Rank(): the launcher
  std::unique_ptr<Coordinator> hosted;  // where this process runs the coordinator
  Duration timeout{};                   // for all to join
  Duration linger{};                    // how long leave() keeps `hosted` for those still at work
  std::function<void()> on_leave;       // at the very end
  bool counts_local = false;            // nobody has told local_rank and local_size: find them
};

class TcpBootstrap final : public BootstrapClient {
 public:
  static Result<std::unique_ptr<Bootstrap>> join(JoinPlan plan);
  ~TcpBootstrap() override;
  void leave() noexcept override;

 private:
  TcpBootstrap(JoinPlan plan, Session session, Fd wake);

  void transmit(const Message& message) override;

  // The monitor thread.
  void monitor();
  void wait_for_events(TimePoint until);
  Status exchange();
  Status send_outbox();
  void lose_coordinator(const Status& why);

  JoinPlan plan_;
  Duration heartbeat_;
  FrameSocket socket_;  // of the monitor, once it runs
  PidWatch pids_;       // of the monitor
  Fd wake_;
  int listener_ = 0;

  std::mutex outbox_mutex_;
  std::vector<Message> outbox_;
  bool is_leaving_ = false;  // under outbox_mutex_
  std::atomic<bool> says_goodbye_{false};
  bool has_left_ = false;  // of the caller's thread
  std::thread monitor_;
};

}  // namespace dunlin::bootstrap
