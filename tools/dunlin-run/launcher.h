// Launcher: the ranks of one machine from their start to their end, and the job's coordinator.
//
// One thread: it waits for signals, for output and for the ends of children. What it does when one
// fails goes in steps of `grace`: the others may report and end by themselves, then SIGTERM, then
// SIGKILL.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/bootstrap/coordinator.h"
#include "runtime/config.h"
#include "tools/dunlin-run/child.h"
#include "tools/dunlin-run/options.h"
#include "tools/dunlin-run/output.h"

namespace dunlin::run {

class Launcher {
 public:
  // `config` and `environment` are the launcher's own; the ranks inherit the environment.
  Launcher(Options options, const Config& config, Environment environment);
  ~Launcher();

  // Starts everything. On an error what was started has been ended.
  Status start();
  // Until all ranks have ended; the exit code of dunlin-run.
  int run();

 private:
  enum class Phase { kRunning, kWaiting, kTerminating, kKilling };
  struct RankProcess {
    Rank rank;
    pid_t pid = 0;
    bool is_running = true;
    int exit_code = 0;
    bool was_killed = false;
    LineRelay out;
    LineRelay err;
  };

  Status start_coordinator();
  Status start_ranks();
  Environment environment_of(int local_rank) const;
  void wait_for_events();
  void read_signals();
  void end_by_signal(int signal);
  void reap();
  void note_end(RankProcess& process, int wait_status);
  void escalate_when_due();
  void enter(Phase phase);
  void signal_all(int signal);
  void drain_output();
  void wait_for_other_machines();
  bool is_any_running() const;
  int exit_code() const;
  void say(const std::string& text) const;

  const Options options_;
  const Config& config_;
  Environment environment_;
  SteadyClock clock_;
  Fd signals_;
  std::unique_ptr<bootstrap::Coordinator> coordinator_;
  int master_port_ = 0;  // of the store of torch.distributed; 0: none was chosen
  std::string secret_;
  std::vector<RankProcess> processes_;
  Phase phase_ = Phase::kRunning;
  TimePoint next_step_ = TimePoint::max();  // of the phase
  TimePoint time_out_ = TimePoint::max();
  std::optional<int> first_failure_;  // its exit code
  bool is_kill_known_ = false;        // first_failure_ is that of a rank that was killed
  std::optional<int> imposed_code_;   // by a signal to dunlin-run, or the time-out
};

}  // namespace dunlin::run
