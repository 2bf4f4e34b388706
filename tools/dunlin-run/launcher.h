// Launcher: runs the ranks of one host from their start to their end, and the coordinator of the
// job.
//
// It has one thread, which waits for signals, for output and for the ends of children. When a rank
// fails, the others have the time `grace` to report it and exit; then they get SIGTERM, and after
// the same time again SIGKILL. So do ranks that stay stopped after all others have ended. What a
// rank leaves running in its process group gets SIGTERM when the rank ends. Everything that ranks
// have left running anywhere gets it when the last rank ends, and SIGKILL when `grace` has passed.
#pragma once

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/bootstrap/coordinator.h"
#include "runtime/config.h"
#include "runtime/core_claims.h"
#include "tools/dunlin-run/child.h"
#include "tools/dunlin-run/job_file.h"
#include "tools/dunlin-run/job_report.h"
#include "tools/dunlin-run/options.h"
#include "tools/dunlin-run/orphans.h"
#include "tools/dunlin-run/output.h"

namespace dunlin::run {

class Launcher {
 public:
  // `config` and `environment` are the launcher's own; the ranks inherit the environment.
  Launcher(Options options, const Config& config, Environment environment);
  ~Launcher();

  // Starts the coordinator and all ranks. After an error, what was started has been ended.
  Status start();
  // Returns the exit code of dunlin-run, when all ranks have ended.
  int run();

 private:
  enum class Phase { kRunning, kWaiting, kTerminating, kKilling };
  struct RankProcess {
    Rank rank;         // none if it joins a running job, which gives it one
    std::string name;  // "rank 3", or "process 0 that joins"
    pid_t pid = 0;
    bool is_running = true;
    bool is_stopped = false;
    int exit_code = 0;
    bool was_killed = false;
    LineRelay out;
    LineRelay err;
  };

  Status start_coordinator();
  Status read_contact();
  Status start_ranks();
  Environment environment_of(int local_rank) const;
  void wait_for_events();
  void read_signals();
  void end_by_signal(int signal);
  void reap();
  void note_end(RankProcess& process, bool was_killed, int status);
  void watch_stopped_ranks();
  bool is_all_stopped() const;
  bool is_rank(pid_t child) const;
  // Ends what ranks have left running: by SIGTERM, and from `kill_at` on by SIGKILL.
  void end_orphans(TimePoint kill_at);
  void say_what_remains();
  // Forgets the ranks, and ends what is left in their process groups.
  void clean_up();
  // Whether the time of --timeout is over by now. True once; then the exit code says so.
  bool take_timeout(TimePoint now);
  void escalate_when_due();
  void enter(Phase phase);
  void signal_all(int signal);
  void drain_output();
  void wait_for_other_hosts();
  void say_report();
  bool is_any_running() const;
  int exit_code() const;
  void say(const std::string& text);

  const Options options_;
  const Config& config_;
  Environment environment_;
  SteadyClock clock_;
  Fd signals_;
  std::unique_ptr<bootstrap::Coordinator> coordinator_;
  int master_port_ = 0;    // for the store of torch.distributed; 0: none was chosen
  Fd master_port_holder_;  // while rank 0 does not listen there yet, nothing else may
  std::string secret_;
  std::optional<JobContact> contact_;  // of the job that is joined
  JobFile job_file_;
  OutputSink out_{STDOUT_FILENO};
  OutputSink err_{STDERR_FILENO};
  CoreClaims claims_{environment_};
  JobReport report_{config_};
  std::vector<RankProcess> processes_;
  Orphans orphans_{[this](pid_t child) { return is_rank(child); }};
  Phase phase_ = Phase::kRunning;
  TimePoint next_step_ = TimePoint::max();  // when the phase changes
  TimePoint deadline_ = TimePoint::max();   // after --timeout
  bool is_watching_stopped_ = false;        // next_step_ is when ranks that stay stopped are ended
  std::optional<int> first_failure_;        // its exit code
  bool is_kill_known_ = false;              // first_failure_ comes from a rank that was killed
  std::optional<int> imposed_code_;         // by a signal to dunlin-run, or by the timeout
  int requests_to_end_ = 0;                 // signals to dunlin-run
};

}  // namespace dunlin::run
