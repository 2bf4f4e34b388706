// A rank for process tests of the bootstrap. It joins the job of its launcher, runs one scenario,
// and prints its observations, one per line. It exits with 0 when the scenario went as described.
//
//   meet               each rank publishes a value, looks up all values, and calls a barrier
//   kill RANK          RANK kills itself with SIGKILL; the others report its death and the delay
//   stop RANK          RANK stops itself; the others see it stalled, wake it, and see it alive
//   reform FIRST NEXT  FIRST dies, NEXT dies before it calls reform(); the others agree
//   leave RANK         RANK leaves the job; the others see that it has left and is not dead
//   end                ends at once
//   die-after [KEY [TOPIC]]
//                      kills itself with SIGKILL when a rank has published KEY; before that, it
//                      publishes what rank 0 has published of TOPIC
//   secret TEXT        says where TEXT is found in the environment; then joins the job again
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/log.h"

namespace dunlin {
namespace {

constexpr Duration kTimeout = std::chrono::seconds(20);

// On a failure, prints it and ends the process, which has nothing to clean up.
void require(const Status& status) {
  if (status.is_ok()) return;
  fmt::print("failed: {}\n", status.to_string());
  std::exit(1);
}

template <typename T>
T require(Result<T> result) {
  require(result.status());
  return std::move(result).value();
}

void publish_number(Bootstrap& bootstrap, const std::string& key, std::int64_t number) {
  require(bootstrap.publish(key, ByteWriter().number(number).take()));
}

std::int64_t lookup_number(Bootstrap& bootstrap, const std::string& key) {
  const Bytes value = require(bootstrap.lookup(key, kTimeout));
  return ByteReader(value).number<std::int64_t>();
}

// Tells all ranks the process ids of all ranks, as the shared-memory transport does.
void exchange_pids(Bootstrap& bootstrap) {
  const auto key = [](int rank) { return "pid/" + std::to_string(rank); };
  publish_number(bootstrap, key(bootstrap.rank().value()), getpid());
  for (int rank = 0; rank < bootstrap.size(); ++rank) {
    bootstrap.peers().set_local_pid(Rank(rank),
                                    static_cast<pid_t>(lookup_number(bootstrap, key(rank))));
  }
  require(bootstrap.barrier("pids are known", kTimeout));
}

// Waits until the condition, which concerns the rank, holds.
template <typename Condition>
void await(Bootstrap& bootstrap, Rank rank, Condition&& condition) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + kTimeout;
  while (!condition()) {
    if (clock.now() > deadline) {
      require(Status(Code::kDeadlineExceeded, fmt::format("rank {} is {}; {}", rank.value(),
                                                          bootstrap.peers().describe(rank),
                                                          bootstrap.peers().diagnose(rank))));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void await_state(Bootstrap& bootstrap, Rank rank, PeerState state) {
  await(bootstrap, rank, [&] { return bootstrap.peers().state(rank) == state; });
}

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             SteadyClock().now().time_since_epoch())
      .count();
}

void meet(Bootstrap& bootstrap) {
  const JobInfo& job = bootstrap.job();
  publish_number(bootstrap, fmt::format("number/{}", job.rank.value()), 100 + job.rank.value());
  std::int64_t sum = 0;
  for (int rank = 0; rank < job.size; ++rank) {
    sum += lookup_number(bootstrap, fmt::format("number/{}", rank));
  }
  require(bootstrap.barrier("met", kTimeout));
  fmt::print("rank {} of {} local {} of {} by {}: sum {}\n", job.rank.value(), job.size,
             job.local_rank, job.local_size, job.launcher, sum);
}

void kill_one(Bootstrap& bootstrap, Rank victim) {
  exchange_pids(bootstrap);
  if (bootstrap.rank() == victim) {
    publish_number(bootstrap, "killed at", now_us());
    std::raise(SIGKILL);
  }
  const std::int64_t killed_at = lookup_number(bootstrap, "killed at");
  await_state(bootstrap, victim, PeerState::kDead);
  fmt::print("noticed after {} us: {}\n", now_us() - killed_at, bootstrap.peers().describe(victim));
  const Status barrier = bootstrap.barrier("after", kTimeout);
  fmt::print("barrier: {}\n", barrier.to_string());
}

void stop_one(Bootstrap& bootstrap, Rank stopped) {
  exchange_pids(bootstrap);
  if (bootstrap.rank() == stopped) {
    std::raise(SIGSTOP);
  } else {
    // On a busy host, it may count as stalled, and as alive again, before it stops. So the state is
    // taken from the text that is printed.
    std::string diagnosis;
    await(bootstrap, stopped, [&] {
      diagnosis = bootstrap.peers().diagnose(stopped);
      return diagnosis.find("is stopped") != std::string::npos;
    });
    std::string description;
    await(bootstrap, stopped, [&] {
      description = bootstrap.peers().describe(stopped);
      return description.starts_with(to_string(PeerState::kStalled));
    });
    fmt::print("{}; {}\n", description, diagnosis);
    // The stopped rank is woken when all others have seen that it is stalled.
    publish_number(bootstrap, fmt::format("seen/{}", bootstrap.rank().value()), 1);
    for (int rank = 0; rank < bootstrap.size(); ++rank) {
      if (Rank(rank) != stopped) lookup_number(bootstrap, fmt::format("seen/{}", rank));
    }
    kill(bootstrap.peers().local_pid(stopped), SIGCONT);
    await_state(bootstrap, stopped, PeerState::kAlive);
    fmt::print("{}\n", bootstrap.peers().describe(stopped));
  }
  require(bootstrap.barrier("all awake", kTimeout));
}

void reform(Bootstrap& bootstrap, Rank first, Rank next) {
  exchange_pids(bootstrap);
  if (bootstrap.rank() == first) std::raise(SIGKILL);
  await_state(bootstrap, first, PeerState::kDead);
  if (bootstrap.rank() == next) std::raise(SIGKILL);
  const Membership membership = require(bootstrap.reform(kTimeout));
  std::vector<int> members;
  for (const Rank rank : membership.members) members.push_back(rank.value());
  require(bootstrap.barrier("survivors", kTimeout));
  fmt::print("epoch {} members {}\n", membership.epoch, fmt::join(members, ","));
}

void leave_one(Bootstrap& bootstrap, Rank leaver) {
  exchange_pids(bootstrap);
  if (bootstrap.rank() == leaver) return;
  await_state(bootstrap, leaver, PeerState::kLeft);
  fmt::print("{}\n", bootstrap.peers().describe(leaver));
  require(bootstrap.barrier("without the rank that left", kTimeout));
}

// Whether TEXT stands in what `command` prints.
bool is_in_output(const std::string& command, const std::string& text) {
  FILE* const pipe = popen(command.c_str(), "r");
  std::string all;
  for (int byte = std::fgetc(pipe); byte != EOF; byte = std::fgetc(pipe))
    all.push_back(static_cast<char>(byte));
  pclose(pipe);
  return all.find(text) != std::string::npos;
}

void hide(std::unique_ptr<Bootstrap> bootstrap, const std::string& secret) {
  const char* const own = std::getenv("DUNLIN_JOB_SECRET");
  fmt::print("own {} children {} proc {}\n", own == nullptr ? "none" : own,
             is_in_output("env", secret),
             is_in_output(fmt::format("cat /proc/{}/environ", getpid()), secret));
  bootstrap.reset();
  const Environment environment = Environment::of_process();
  const Config config = require(Config::parse(environment));
  bootstrap = require(Bootstrap::join(config, environment));
  fmt::print("joined again\n");
}

int run(int argc, char** argv) {
  const Environment environment = Environment::of_process();
  const Config config = require(Config::parse(environment));
  auto bootstrap = require(Bootstrap::join(config, environment));
  configure_log(config.log_level, bootstrap->rank());
  const std::string_view scenario = argc > 1 ? argv[1] : "meet";
  const auto rank = [&](int index) { return Rank(argc > index ? std::atoi(argv[index]) : 0); };
  if (scenario == "meet") {
    meet(*bootstrap);
  } else if (scenario == "kill") {
    kill_one(*bootstrap, rank(2));
  } else if (scenario == "stop") {
    stop_one(*bootstrap, rank(2));
  } else if (scenario == "reform") {
    reform(*bootstrap, rank(2), rank(3));
  } else if (scenario == "leave") {
    leave_one(*bootstrap, rank(2));
  } else if (scenario == "end") {
    return 0;
  } else if (scenario == "die-after") {
    if (argc > 3) {
      const auto told = bootstrap->lookup(Bootstrap::key_of(argv[3], Rank(0)), kTimeout);
      require(told.status());
      require(bootstrap->publish(Bootstrap::key_of(argv[3], bootstrap->job().rank), *told));
    }
    if (argc > 2) require(bootstrap->lookup(argv[2], kTimeout).status());
    std::raise(SIGKILL);
  } else if (scenario == "secret") {
    hide(std::move(bootstrap), argc > 2 ? argv[2] : "");
  } else {
    fmt::print("no scenario '{}'\n", scenario);
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace dunlin

int main(int argc, char** argv) {
  return dunlin::run(argc, argv);
}
