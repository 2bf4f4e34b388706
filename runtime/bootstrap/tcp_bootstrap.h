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
#include "runtime/bootstrap/coordinator.h"
#include "runtime/bootstrap/handshake.h"
#include "runtime/bootstrap/pid_watch.h"

namespace dunlin::bootstrap {

// How to join a job, as the launcher's variables describe it.
struct JoinPlan {
  JobInfo job;                        // job_id may be empty: the coordinator names the job
  std::vector<Endpoint> coordinator;  // possible addresses; the first that answers is used
  std::string secret;
  Rank host{0};                         // the rank that runs the coordinator; Rank(): the launcher
  std::unique_ptr<Coordinator> hosted;  // the coordinator, if this process runs it
  Duration timeout{};                   // for all ranks to join
  Duration linger{};                    // how long leave() keeps `hosted` for ranks in the job
  std::function<void()> on_leave;       // called at the end of leave()
  bool counts_local = false;            // find local_rank and local_size, which are not known
};

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
  Status exchange();
  Status send_outbox();
  void on_coordinator_failure(const Status& why);

  JoinPlan plan_;
  Duration heartbeat_;
  FrameSocket socket_;  // used by the monitor thread only, once it runs
  PidWatch pids_;       // used by the monitor thread only
  Fd wake_;
  int listener_ = 0;

  std::mutex outbox_mutex_;
  std::vector<Message> outbox_;
  bool is_leaving_ = false;  // under outbox_mutex_
  std::atomic<bool> announces_leave_{false};
  bool has_left_ = false;  // used by the calling thread only
  std::thread monitor_;
};

}  // namespace dunlin::bootstrap
