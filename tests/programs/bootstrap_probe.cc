// A small job for the process tests: joins as its launcher says and plays one scenario. Prints what
// it sees, one fact per line; exits with 0 when everything went as the scenario says.
//
//   meet               everybody publishes, looks everybody up, meets in a barrier
//   kill RANK          RANK kills itself with SIGKILL; the others report it and how long that took
//   stop RANK          RANK stops itself; the others see it stalled, wake it, and see it alive
//   reform FIRST NEXT  FIRST dies, NEXT dies instead of agreeing on the survivors; the rest agrees
//   leave RANK         RANK says good-bye and ends; the others see it left, not dead
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/log.h"

namespace dunlin {
namespace {

constexpr Duration kPatience = std::chrono::seconds(20);

// Prints and ends the process: a probe that is lost has nothing to clean up.
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
  const Bytes value = require(bootstrap.lookup(key, kPatience));
  return ByteReader(value).number<std::int64_t>();
}

// Everybody learns everybody's process id, as a shared-memory transport would tell it.
void exchange_pids(Bootstrap& bootstrap) {
  const auto key = [](int rank) { return "pid/" + std::to_string(rank); };
  publish_number(bootstrap, key(bootstrap.rank().value()), getpid());
  for (int rank = 0; rank < bootstrap.size(); ++rank) {
    bootstrap.peers().set_local_pid(Rank(rank),
                                    static_cast<pid_t>(lookup_number(bootstrap, key(rank))));
  }
  require(bootstrap.barrier("pids are known", kPatience));
}

void await_state(Bootstrap& bootstrap, Rank rank, PeerState state) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + kPatience;
  while (bootstrap.peers().state(rank) != state) {
    if (clock.now() > deadline) {
      require(Status(Code::kDeadlineExceeded,
                     fmt::format("rank {} is {}", rank.value(), bootstrap.peers().describe(rank))));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
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
  require(bootstrap.barrier("met", kPatience));
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
  const Status barrier = bootstrap.barrier("after", kPatience);
  fmt::print("barrier: {}\n", barrier.to_string());
}

void stop_one(Bootstrap& bootstrap, Rank sleeper) {
  exchange_pids(bootstrap);
  if (bootstrap.rank() == sleeper) {
    std::raise(SIGSTOP);
  } else {
    await_state(bootstrap, sleeper, PeerState::kStalled);
    fmt::print("{}; {}\n", bootstrap.peers().describe(sleeper),
               bootstrap.peers().diagnose(sleeper));
    // The sleeper is woken when all have seen it.
    publish_number(bootstrap, fmt::format("seen/{}", bootstrap.rank().value()), 1);
    for (int rank = 0; rank < bootstrap.size(); ++rank) {
      if (Rank(rank) != sleeper) lookup_number(bootstrap, fmt::format("seen/{}", rank));
    }
    kill(bootstrap.peers().local_pid(sleeper), SIGCONT);
    await_state(bootstrap, sleeper, PeerState::kAlive);
    fmt::print("{}\n", bootstrap.peers().describe(sleeper));
  }
  require(bootstrap.barrier("all awake", kPatience));
}

void reform(Bootstrap& bootstrap, Rank first, Rank next) {
  exchange_pids(bootstrap);
  if (bootstrap.rank() == first) std::raise(SIGKILL);
  await_state(bootstrap, first, PeerState::kDead);
  if (bootstrap.rank() == next) std::raise(SIGKILL);
  const Membership membership = require(bootstrap.reform(kPatience));
  std::vector<int> members;
  for (const Rank rank : membership.members) members.push_back(rank.value());
  require(bootstrap.barrier("survivors", kPatience));
  fmt::print("epoch {} members {}\n", membership.epoch, fmt::join(members, ","));
}

void leave_one(Bootstrap& bootstrap, Rank leaver) {
  exchange_pids(bootstrap);
  if (bootstrap.rank() == leaver) return;
  await_state(bootstrap, leaver, PeerState::kLeft);
  fmt::print("{}\n", bootstrap.peers().describe(leaver));
  require(bootstrap.barrier("without the leaver", kPatience));
}

int run(int argc, char** argv) {
  const Environment environment = Environment::of_process();
  const Config config = require(Config::parse(environment));
  const auto bootstrap = require(Bootstrap::join(config, environment));
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
