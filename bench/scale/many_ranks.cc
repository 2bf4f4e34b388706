// Starts a job of many ranks on one host against the real coordinator, and prints how long each
// step takes until the last rank has ended it, and how much memory a rank takes.
//
//   many_ranks RANKS PROCESSES
//
// The ranks are threads of the processes. Each joins the job, makes a fabric over shm, a
// communicator of all ranks and a window over an exponential graph, calls all-reduce, and leaves.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "collectives/graph/generators.h"
#include "collectives/rma/neighbor_window.h"
#include "collectives/stochastic/neighborhood.h"
#include "runtime/bootstrap/coordinator.h"
#include "runtime/bootstrap/tcp_bootstrap.h"
#include "runtime/descriptor_limit.h"
#include "transports/fabric.h"

namespace dunlin {
namespace {

constexpr const char* kSecret = "the secret of a job on one host only";
constexpr Duration kTimeout = std::chrono::minutes(5);
constexpr std::uint64_t kDescriptorsPerRank = 64;

constexpr std::array kSteps{"join the job", "make a fabric", "make a communicator", "make a window",
                            "all-reduce",   "nine more",     "leave the job"};

// What a process tells of its ranks, in a pipe.
struct Report {
  std::array<double, kSteps.size()> ended{};  // seconds after the start, of its last rank
  double bytes = 0;                           // of memory of all its ranks, before they leave
};

double seconds_since(TimePoint start) {
  return to_seconds(SteadyClock().now() - start);
}

// Memory that is shared by n processes counts as its n-th part in each.
double proportional_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    if (line.starts_with("Pss:")) return std::strtod(line.c_str() + 4, nullptr) * 1024;
  }
  return 0;
}

class RankThread {
 public:
  RankThread(int rank, int size, const bootstrap::Endpoint& coordinator, const Config& config,
             const collective::Graph& graph)
      : rank_(rank), size_(size), coordinator_(coordinator), config_(config), graph_(graph) {}

  // Carries out step number `step` of kSteps.
  Status step(std::size_t step) {
    switch (step) {
      case 0:
        return join();
      case 1: {
        DUNLIN_ASSIGN(fabric_, transport::Fabric::create(*bootstrap_, config_, clock_));
        return Status::ok();
      }
      case 2: {
        collective::CommunicatorOptions options;
        options.scratch_bytes = std::size_t{64} << 10;
        DUNLIN_ASSIGN(communicator_, collective::Communicator::create(*fabric_, options));
        return Status::ok();
      }
      case 3:
        return open_window();
      case 4:
        return all_reduce();
      case 5: {
        for (int i = 0; i < 9; ++i) DUNLIN_TRY(all_reduce());
        return Status::ok();
      }
      default:
        window_.reset();
        communicator_.reset();
        fabric_.reset();
        bootstrap_.reset();
        return Status::ok();
    }
  }

 private:
  Status join() {
    bootstrap::JoinPlan plan;
    plan.job = {.rank = Rank(rank_), .size = size_, .local_rank = rank_, .local_size = size_};
    plan.coordinator = {coordinator_};
    plan.secret = kSecret;
    plan.host = Rank();
    plan.timeout = kTimeout;
    DUNLIN_ASSIGN(bootstrap_, bootstrap::TcpBootstrap::join(std::move(plan)));
    return Status::ok();
  }

  Status open_window() {
    collective::WindowOptions options;
    options.count = 16;
    std::vector<Rank> members;
    for (int rank = 0; rank < size_; ++rank) members.emplace_back(rank);
    DUNLIN_ASSIGN(
        options.neighborhood,
        collective::neighborhood_of(graph_, collective::Weighting::kUniform, members, Rank(rank_)));
    DUNLIN_ASSIGN(window_, collective::NeighborWindow<float>::prepare(*fabric_, options));
    return window_->connect();
  }

  Status all_reduce() {
    // Memory of the communicator, as it would make memory of 4 MiB for copies of the program's own.
    if (sum_ == nullptr) {
      DUNLIN_ASSIGN(const auto memory, communicator_->allocate(sizeof *sum_));
      sum_ = reinterpret_cast<float*>(memory.data());
    }
    *sum_ = 1;
    DUNLIN_TRY(communicator_->all_reduce(sum_, sum_, 1, collective::Reduction()));
    if (*sum_ == static_cast<float>(size_)) return Status::ok();
    return {Code::kInternal, fmt::format("the sum of {} ones is {}", size_, *sum_)};
  }

  int rank_;
  int size_;
  const bootstrap::Endpoint& coordinator_;
  const Config& config_;
  const collective::Graph& graph_;
  SteadyClock clock_;
  std::unique_ptr<Bootstrap> bootstrap_;
  std::unique_ptr<transport::Fabric> fabric_;
  std::unique_ptr<collective::Communicator> communicator_;
  std::unique_ptr<collective::NeighborWindow<float>> window_;
  float* sum_ = nullptr;
};

// Runs ranks first .. first + count - 1 as threads of this process. These begin each step together;
// processes do not wait for one another.
Report run_ranks(int first, int count, int size, const bootstrap::Endpoint& coordinator,
                 TimePoint start) {
  Config config = Config::parse(Environment()).value();
  config.transports = {"shm"};
  config.deadline = kTimeout;
  const collective::Graph graph = collective::make_graph("exponential", size).value();
  Report report;
  std::size_t step = 0;
  const double before = proportional_bytes();
  std::barrier together(count, [&]() noexcept {
    report.ended[step] = seconds_since(start);
    if (++step == kSteps.size() - 1) report.bytes = proportional_bytes() - before;
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, rank = first + i] {
      RankThread self(rank, size, coordinator, config, graph);
      for (std::size_t at = 0; at < kSteps.size(); ++at) {
        if (const Status status = self.step(at); !status) {
          fmt::print(stderr, "rank {} cannot {}: {}\n", rank, kSteps[at], status.to_string());
          std::_Exit(1);
        }
        together.arrive_and_wait();
      }
    });
  }
  for (std::thread& each : threads) each.join();
  return report;
}

struct Child {
  pid_t pid = 0;
  int pipe = -1;
};

int run(int ranks, int processes) {
  // The processes are forked before the coordinator's thread exists, so they wait for its port.
  int go[2];
  if (pipe(go) != 0) return 1;
  const TimePoint start = SteadyClock().now();
  bootstrap::Endpoint address{"127.0.0.1", 0};
  std::vector<Child> children;
  for (int i = 0; i < processes; ++i) {
    const int first = static_cast<int>(static_cast<std::int64_t>(ranks) * i / processes);
    const int end = static_cast<int>(static_cast<std::int64_t>(ranks) * (i + 1) / processes);
    int ends[2];
    if (pipe(ends) != 0) return 1;
    const pid_t pid = fork();
    if (pid < 0) {
      fmt::print(stderr, "{}\n", Status::from_errno("fork", errno).to_string());
      return 1;
    }
    if (pid == 0) {
      close(go[1]);
      if (read(go[0], &address.port, sizeof address.port) != sizeof address.port) _exit(1);
      raise_descriptor_limit(kDescriptorsPerRank * static_cast<std::uint64_t>(end - first));
      const Report report = run_ranks(first, end - first, ranks, address, start);
      _exit(write(ends[1], &report, sizeof report) == sizeof report ? 0 : 1);
    }
    close(ends[1]);
    children.push_back({pid, ends[0]});
  }
  auto coordinator = bootstrap::Coordinator::start(
      {.size = ranks, .secret = kSecret, .heartbeat = std::chrono::seconds(5), .listen = address});
  if (!coordinator) {
    fmt::print(stderr, "{}\n", coordinator.status().to_string());
    return 1;
  }
  const auto port = (*coordinator)->address().port;
  for (int i = 0; i < processes; ++i) {
    if (write(go[1], &port, sizeof port) != sizeof port) return 1;
  }
  Report all;
  int failed = 0;
  for (const Child& child : children) {
    Report report;
    const bool is_read = read(child.pipe, &report, sizeof report) == sizeof report;
    int status = 0;
    waitpid(child.pid, &status, 0);
    if (WIFSIGNALED(status))
      fmt::print(stderr, "process {}: {}\n", child.pid, strsignal(WTERMSIG(status)));
    if (!is_read || status != 0) ++failed;
    for (std::size_t i = 0; i < kSteps.size(); ++i)
      all.ended[i] = std::max(all.ended[i], report.ended[i]);
    all.bytes += report.bytes;
  }
  if (failed > 0) {
    fmt::print(stderr, "{} of {} processes failed\n", failed, processes);
    return 1;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("{} ranks in {} processes on {} cores\n", ranks, processes,
             std::thread::hardware_concurrency());
  double before = 0;
  for (std::size_t i = 0; i < kSteps.size(); ++i) {
    fmt::print("{:<22}{:8.3f} s\n", kSteps[i], all.ended[i] - before);
    before = all.ended[i];
  }
  fmt::print("memory of a rank      {:8.0f} KiB\n", all.bytes / 1024 / ranks);
  fmt::print("coordinator           {:8.3f} s of a core, {:.0f} MiB\n",
             static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6,
             static_cast<double>(usage.ru_maxrss) / 1024);
  return 0;
}

// Returns 0 for what is no number between 1 and `most`.
int parse(std::string_view text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 && value <= most
             ? value
             : 0;
}

}  // namespace
}  // namespace dunlin

int main(int argc, char** argv) {
  const int ranks = argc == 3 ? dunlin::parse(argv[1], 65536) : 0;
  const int processes = argc == 3 ? dunlin::parse(argv[2], ranks) : 0;
  if (ranks < 1 || processes < 1) {
    fmt::print(stderr, "usage: many_ranks RANKS PROCESSES\n");
    return 2;
  }
  return dunlin::run(ranks, processes);
}
