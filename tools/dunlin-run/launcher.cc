#include "tools/dunlin-run/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "runtime/bootstrap/discovery.h"
#include "runtime/descriptor_limit.h"
#include "runtime/print.h"
#include "tools/dunlin-run/binding.h"

namespace dunlin::run {
namespace {

constexpr int kTimeoutCode = 124;  // the one of timeout(1)
constexpr Duration kDrainTime = std::chrono::milliseconds(500);
constexpr Duration kPollOtherHosts = std::chrono::milliseconds(100);
constexpr Duration kPollOrphans = std::chrono::milliseconds(20);
// Descriptors of this process: for each rank here its two outputs, its process and its connection
// to the coordinator, for the others the connection only, and some for everything else.
constexpr int kDescriptorsPerRank = 4;
constexpr int kOtherDescriptors = 16;
constexpr Duration kKillTime = std::chrono::seconds(10);  // in which SIGKILL ends a process

bool asks_to_end(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

// Blocks the signals that the launcher reads from the descriptor. The parent may ignore SIGCHLD; if
// that stayed so, the kernel would report the end of no rank. SIGPIPE is ignored, so that the job
// goes on when the reader of its output has gone.
Result<Fd> take_signals() {
  signal(SIGCHLD, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int each : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    sigaddset(&signals, each);
  }
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  Fd fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.is_open()) return Status::from_errno("signalfd", errno);
  return fd;
}

}  // namespace

Launcher::Launcher(Options options, const Config& config, Environment environment)
    : options_(std::move(options)), config_(config), environment_(std::move(environment)) {}

Launcher::~Launcher() {
  signal_all(SIGKILL);
  clean_up();
}

Status Launcher::start() {
  const int needed = kDescriptorsPerRank * options_.ranks +
                     (options_.hosts_coordinator() ? options_.max_ranks - options_.ranks : 0) +
                     kOtherDescriptors;
  DUNLIN_TRY(require_descriptors(static_cast<std::uint64_t>(needed),
                                 fmt::format("starting {} ranks", options_.ranks)));
  if (options_.reports) DUNLIN_TRY(report_.check());
  DUNLIN_ASSIGN(signals_, take_signals());
  DUNLIN_TRY(orphans_.adopt());
  DUNLIN_TRY(options_.is_joining() ? read_contact() : start_coordinator());
  if (options_.timeout > Duration::zero()) deadline_ = clock_.now() + options_.timeout;
  Status status = start_ranks();
  if (!status) {
    signal_all(SIGKILL);
    clean_up();
    end_orphans(clock_.now());
  }
  return status;
}

Status Launcher::start_coordinator() {
  if (options_.is_whole_job()) {
    secret_ = bootstrap::random_hex(32);
  } else {
    DUNLIN_ASSIGN(secret_, bootstrap::read_job_secret(config_));
  }
  if (!options_.hosts_coordinator()) return Status::ok();
  const bootstrap::Endpoint local{"127.0.0.1", 0};
  if (options_.is_whole_job() && !environment_.get("MASTER_ADDR")) {
    bootstrap::Endpoint master = local;
    DUNLIN_ASSIGN(master_port_holder_, bootstrap::hold_port(master));
    master_port_ = master.port;
  }
  const auto listen =
      options_.coordinator ? bootstrap::listening_endpoint(*options_.coordinator) : local;
  DUNLIN_ASSIGN(coordinator_, bootstrap::Coordinator::start({.size = options_.max_ranks,
                                                             .founders = options_.size,
                                                             .job_id = config_.job_id,
                                                             .secret = secret_,
                                                             .heartbeat = config_.heartbeat,
                                                             .grace = config_.reconnect_timeout,
                                                             .listen = listen}));
  if (options_.job_file.empty()) return Status::ok();
  bootstrap::Endpoint reached = options_.coordinator.value_or(local);
  reached.port = coordinator_->address().port;
  return job_file_.write(options_.job_file, {reached, coordinator_->job_id(), secret_});
}

Status Launcher::read_contact() {
  DUNLIN_ASSIGN(contact_, read_job_file(options_.joins));
  secret_ = contact_->secret;
  return Status::ok();
}

Environment Launcher::environment_of(int local_rank) const {
  Environment result = environment_;
  const auto set = [&result](const char* name, int value) {
    result.set(name, std::to_string(value));
  };
  set("DUNLIN_LOCAL_RANK", local_rank);
  set("DUNLIN_LOCAL_SIZE", options_.ranks);
  result.set("DUNLIN_COORDINATOR", "launcher");
  result.set("DUNLIN_JOB_SECRET", secret_);
  result.set("DUNLIN_JOB_SECRET_FILE", "");
  if (contact_) {
    result.set("DUNLIN_JOIN", "on");
    result.set("DUNLIN_MAX_RANKS", "0");
    result.set("DUNLIN_RANK", "");
    result.set("DUNLIN_SIZE", "");
    result.set("DUNLIN_JOB_ID", contact_->job_id);
    result.set("DUNLIN_BOOTSTRAP_ADDRESS", contact_->coordinator.to_string());
    return result;
  }
  set("DUNLIN_RANK", options_.first_rank + local_rank);
  set("DUNLIN_SIZE", options_.size);
  // Those of this process are those of the job that it belongs to itself.
  set("DUNLIN_MAX_RANKS", options_.may_grow() ? options_.max_ranks : 0);
  result.set("DUNLIN_JOIN", "off");
  // For programs that read no more than these from their MPI launcher.
  set("OMPI_COMM_WORLD_RANK", options_.first_rank + local_rank);
  set("OMPI_COMM_WORLD_SIZE", options_.size);
  set("OMPI_COMM_WORLD_LOCAL_RANK", local_rank);
  set("OMPI_COMM_WORLD_LOCAL_SIZE", options_.ranks);
  // For programs that were written for torchrun. When rank 0 runs on another host, the user sets
  // MASTER_ADDR and MASTER_PORT.
  set("RANK", options_.first_rank + local_rank);
  set("WORLD_SIZE", options_.size);
  set("LOCAL_RANK", local_rank);
  set("LOCAL_WORLD_SIZE", options_.ranks);
  if (master_port_ != 0) {
    result.set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", master_port_);
  }
  auto contact = options_.coordinator.value_or(bootstrap::Endpoint{"127.0.0.1", 0});
  if (coordinator_) {
    contact.port = coordinator_->address().port;
    result.set("DUNLIN_JOB_ID", coordinator_->job_id());
  }
  result.set("DUNLIN_BOOTSTRAP_ADDRESS", contact.to_string());
  if (options_.reports) JobReport::prepare(result);
  return result;
}

Status Launcher::start_ranks() {
  DUNLIN_ASSIGN(const std::string path, find_program(options_.command.front(), environment_));
  DUNLIN_ASSIGN(const auto binding, plan_binding(options_.bind, options_.ranks, claims_));
  for (int local_rank = 0; local_rank < options_.ranks; ++local_rank) {
    const Rank rank = contact_ ? Rank() : Rank(options_.first_rank + local_rank);
    const std::string name = contact_ ? fmt::format("process {} that joins", local_rank)
                                      : fmt::format("rank {}", rank.value());
    const std::string number =
        contact_ ? fmt::format("+{}", local_rank) : std::to_string(rank.value());
    auto child = start_child({path, options_.command, environment_of(local_rank),
                              binding[static_cast<std::size_t>(local_rank)]});
    if (!child) return std::move(child).status().with_context(name);
    const std::string tag = options_.tags == Tags::kNone ? "" : fmt::format("[{}] ", number);
    const bool keeps_json = options_.tags == Tags::kAllButJson;
    processes_.push_back({.rank = rank,
                          .name = name,
                          .pid = child->pid,
                          .out = LineRelay(std::move(child->out), out_, tag, keeps_json),
                          .err = LineRelay(std::move(child->err), err_, tag, false)});
  }
  return Status::ok();
}

int Launcher::run() {
  while (is_any_running()) {
    wait_for_events();
    read_signals();
    reap();
    watch_stopped_ranks();
    escalate_when_due();
  }
  end_orphans(clock_.now() + options_.grace);
  clean_up();
  drain_output();
  if (options_.reports) say_report();
  wait_for_other_hosts();
  const int error = out_.error() != 0 ? out_.error() : err_.error();
  if (error == 0) return exit_code();
  print_error(fmt::format("dunlin-run: the output of the ranks could not be written: {}\n",
                          strerror(error)));
  return exit_code() == 0 ? 1 : exit_code();
}

// The output of the ranks comes before.
void Launcher::say_report() {
  const std::string job_id = coordinator_ ? coordinator_->job_id() : config_.job_id;
  err_.append(report_.take(job_id, secret_, exit_code() == 0));
  drain_output();
}

void Launcher::wait_for_events() {
  std::vector<pollfd> entries{{signals_.get(), POLLIN, 0}};
  for (const OutputSink* const sink : {&out_, &err_})
    entries.push_back({sink->has_text() ? sink->fd() : -1, POLLOUT, 0});
  const std::size_t first = entries.size();
  for (const RankProcess& each : processes_) {
    entries.push_back({each.out.fd(), POLLIN, 0});
    entries.push_back({each.err.fd(), POLLIN, 0});
  }
  const TimePoint until = std::min(next_step_, deadline_);
  const int timeout =
      until == TimePoint::max() ? -1 : bootstrap::poll_timeout_ms(clock_.now(), until);
  if (poll(entries.data(), entries.size(), timeout) <= 0) return;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (entries[first + 2 * i].revents != 0) processes_[i].out.relay();
    if (entries[first + 2 * i + 1].revents != 0) processes_[i].err.relay();
  }
  out_.flush();
  err_.flush();
}

void Launcher::read_signals() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    const auto signal = static_cast<int>(info.ssi_signo);
    if (asks_to_end(signal)) {
      end_by_signal(signal);
    } else if (signal == SIGCHLD) {
      orphans_.reap();
    } else {
      signal_all(signal);
    }
  }
}

void Launcher::end_by_signal(int signal) {
  ++requests_to_end_;
  if (imposed_code_) return enter(Phase::kKilling);  // the second request
  imposed_code_ = 128 + signal;
  say(fmt::format("{} (signal {}): ending all ranks", strsignal(signal), signal));
  signal_all(signal);
  phase_ = Phase::kTerminating;
  next_step_ = clock_.now() + options_.grace;
}

// Ranks that have ended stay zombies until clean_up(), so that the numbers of their process groups
// are not used again.
void Launcher::reap() {
  for (RankProcess& process : processes_) {
    if (!process.is_running) continue;
    siginfo_t info{};
    const auto id = static_cast<id_t>(process.pid);
    while (waitid(P_PID, id, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid != 0) {
      process.is_stopped = info.si_code == CLD_STOPPED;
      info = {};
    }
    info = {};
    if (waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
    note_end(process, info.si_code != CLD_EXITED, info.si_status);
    kill(-process.pid, SIGTERM);
  }
}

bool Launcher::is_rank(pid_t child) const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [child](const RankProcess& each) { return each.pid == child; });
}

// Each orphan that ends may leave some of its own. A process that doesn't even end by SIGKILL waits
// for a device; it is named and left.
void Launcher::end_orphans(TimePoint kill_at) {
  const int requests = requests_to_end_;
  kill_at = std::min(kill_at, deadline_);
  TimePoint give_up_at = TimePoint::max();
  for (;;) {
    const TimePoint now = clock_.now();
    take_timeout(now);
    const bool kills = now >= kill_at || requests_to_end_ != requests;
    if (kills && give_up_at == TimePoint::max()) {
      kill_at = now;
      give_up_at = now + kKillTime;
    }
    if (!(kills ? orphans_.kill() : orphans_.ask_to_end())) return;
    if (now >= give_up_at) return say_what_remains();
    // While processes are killed, those that they have just started become orphans unannounced.
    next_step_ = kills ? now + kPollOrphans : kill_at;
    wait_for_events();
    read_signals();
  }
}

void Launcher::say_what_remains() {
  for (const pid_t orphan : orphans_.running())
    say(fmt::format("process {}, which a rank has left running, does not end", orphan));
}

void Launcher::clean_up() {
  for (RankProcess& each : processes_) {
    each.is_running = false;
    if (each.pid == 0) continue;
    kill(-each.pid, SIGKILL);
    waitpid(std::exchange(each.pid, 0), nullptr, 0);
  }
}

bool Launcher::is_all_stopped() const {
  bool has_ended = false;
  for (const RankProcess& each : processes_) {
    if (each.is_running && !each.is_stopped) return false;
    has_ended |= !each.is_running;
  }
  return has_ended;
}

// A rank that stays stopped would keep the job for ever.
void Launcher::watch_stopped_ranks() {
  if (phase_ != Phase::kRunning || !is_any_running()) return;
  if (is_watching_stopped_ == is_all_stopped()) return;
  is_watching_stopped_ = !is_watching_stopped_;
  next_step_ = is_watching_stopped_ ? clock_.now() + options_.grace : TimePoint::max();
}

void Launcher::note_end(RankProcess& process, bool was_killed, int status) {
  process.is_running = false;
  process.was_killed = was_killed;
  process.exit_code = was_killed ? 128 + status : status;
  const std::string how =
      process.was_killed ? fmt::format("was killed by signal {} ({})", status, strsignal(status))
                         : fmt::format("exited with code {}", process.exit_code);
  if (coordinator_) {
    coordinator_->declare_dead(process.rank, fmt::format("process {} {}", process.pid, how));
  }
  if (process.exit_code == 0) return;
  // The end of a rank that was told to end is not reported.
  if (phase_ <= Phase::kWaiting) {
    say(fmt::format("{} (process {}) {}", process.name, process.pid, how));
  }
  // A rank that was killed is the cause, though ranks that noticed it may have ended sooner.
  const bool is_cause = process.was_killed && phase_ <= Phase::kWaiting && !is_kill_known_;
  if (!first_failure_ || is_cause) first_failure_ = process.exit_code;
  is_kill_known_ = is_kill_known_ || is_cause;
  if (phase_ == Phase::kRunning && !options_.keeps_going && is_any_running())
    enter(Phase::kWaiting);
}

bool Launcher::take_timeout(TimePoint now) {
  if (now < deadline_) return false;
  deadline_ = TimePoint::max();
  if (!imposed_code_) imposed_code_ = kTimeoutCode;
  return true;
}

void Launcher::escalate_when_due() {
  const TimePoint now = clock_.now();
  if (take_timeout(now)) {
    say(fmt::format("timeout after {:g} s: ending all ranks", to_seconds(options_.timeout)));
    enter(Phase::kTerminating);
  } else if (now >= next_step_ && phase_ == Phase::kRunning) {
    for (const RankProcess& each : processes_) {
      if (each.is_running)
        say(fmt::format("{} (process {}) is stopped and all others have ended: ending it",
                        each.name, each.pid));
    }
    if (!first_failure_) first_failure_ = 128 + SIGTERM;
    enter(Phase::kTerminating);
    signal_all(SIGCONT);
  } else if (now >= next_step_) {
    enter(phase_ == Phase::kWaiting ? Phase::kTerminating : Phase::kKilling);
  }
}

void Launcher::enter(Phase phase) {
  phase_ = phase;
  next_step_ = phase == Phase::kKilling ? TimePoint::max() : clock_.now() + options_.grace;
  if (phase == Phase::kTerminating) signal_all(SIGTERM);
  if (phase == Phase::kKilling) signal_all(SIGKILL);
}

void Launcher::signal_all(int signal) {
  for (const RankProcess& each : processes_) {
    if (each.is_running && each.pid > 0) kill(-each.pid, signal);
  }
}

bool Launcher::is_any_running() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const RankProcess& each) { return each.is_running; });
}

// Passes on what the ranks wrote last. It does not wait long for a process that has left a rank's
// group and keeps a pipe open. It waits for the reader of the output, but no longer once the job
// was asked to end.
void Launcher::drain_output() {
  const auto is_open = [](const RankProcess& each) {
    return each.out.is_open() || each.err.is_open();
  };
  next_step_ = clock_.now() + kDrainTime;
  for (const int requests = requests_to_end_; requests_to_end_ == requests;) {
    const TimePoint now = clock_.now();
    take_timeout(now);
    const bool is_blocked = out_.has_text() || err_.has_text();
    if (now >= next_step_ && (imposed_code_ || !is_blocked)) return;
    if (!is_blocked && std::none_of(processes_.begin(), processes_.end(), is_open)) return;
    // While the reader is slow, the ranks' last words still lie in their pipes.
    if (is_blocked && !imposed_code_) next_step_ = now + kDrainTime;
    wait_for_events();
    read_signals();
  }
}

// The coordinator stays until the ranks that were started elsewhere have ended.
void Launcher::wait_for_other_hosts() {
  if (!coordinator_ || (options_.is_whole_job() && !options_.may_grow())) return;
  if (!imposed_code_ && !coordinator_->wait_until_empty(clock_.now() + kPollOtherHosts))
    say(fmt::format("waiting for {} ranks that were started elsewhere", coordinator_->active()));
  while (!imposed_code_ && !coordinator_->wait_until_empty(clock_.now() + kPollOtherHosts)) {
    read_signals();
    if (take_timeout(clock_.now())) {
      say(
          fmt::format("timeout after {:g} s: no longer waiting for {} ranks that were started "
                      "elsewhere",
                      to_seconds(options_.timeout), coordinator_->active()));
    }
  }
}

int Launcher::exit_code() const {
  if (imposed_code_) return *imposed_code_;
  if (!options_.keeps_going || !first_failure_) return first_failure_.value_or(0);
  bool has_success = false;
  for (const RankProcess& each : processes_) {
    if (each.exit_code != 0 && !each.was_killed) return each.exit_code;
    has_success |= each.exit_code == 0;
  }
  return has_success ? 0 : *first_failure_;
}

void Launcher::say(const std::string& text) {
  err_.append(fmt::format("dunlin-run: {}\n", text));
  err_.flush();
}

}  // namespace dunlin::run
