#include "tests/support/ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iterator>
#include <thread>

#include "runtime/bootstrap/coordinator.h"
#include "runtime/fd.h"
#include "runtime/log.h"
#include "runtime/membarrier.h"

namespace dunlin::testing {
namespace {

using transport::Fabric;

constexpr auto kTimeout = std::chrono::seconds(30);
constexpr const char* kSecret = "the secret of conformance";

Config configuration(const RunOptions& options) {
  Config config = Config::from_environment().value();
  if (options.configure) options.configure(config);
  return config;
}

// Waits until every present rank has called it. Makes progress meanwhile, which the last operations
// of peers may need.
bool await_all(Fabric& fabric, const std::string& name) {
  Bootstrap& bootstrap = fabric.bootstrap();
  const auto key = [&](int rank) { return name + "/reached by " + std::to_string(rank); };
  if (!bootstrap.publish(key(fabric.rank().value()), {}).is_ok()) return false;
  for (int rank = 0; rank < fabric.size(); ++rank) {
    const bool is_here = progress_until(fabric, [&] {
      return !bootstrap.peers().is_present(Rank(rank)) ||
             bootstrap.lookup(key(rank), std::chrono::milliseconds(1)).is_ok();
    });
    if (!is_here) return false;
  }
  return true;
}

void run_rank(Bootstrap& bootstrap, const Config& config, const RankBody& body) {
  const SteadyClock clock;
  auto fabric = Fabric::create(bootstrap, config, clock);
  ASSERT_TRUE(fabric.is_ok()) << fabric.status().to_string();
  try {
    body(**fabric);
  } catch (const std::exception& error) {
    // Otherwise the program would end, and no other test would be reported.
    ADD_FAILURE() << "rank " << (*fabric)->rank().value() << ": " << error.what();
  }
  // No rank may end while others still use its resources. Ranks that are gone are not waited for.
  (void)await_all(**fabric, "end of the test");
}

void run_threads(const RunOptions& options, const Config& config, const RankBody& body) {
  InProcessJob job(options.size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto bootstrap = job.bootstrap(Rank(rank));
      run_rank(*bootstrap, config, body);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

[[noreturn]] void run_child(int rank, const RunOptions& options, int address_fd, const Config& base,
                            const RankBody& body) {
  char address[128] = {};
  if (read(address_fd, address, sizeof address - 1) <= 0) _exit(2);
  Environment environment;
  environment.set("DUNLIN_RANK", std::to_string(rank));
  environment.set("DUNLIN_SIZE", std::to_string(options.size));
  environment.set("DUNLIN_LOCAL_RANK", std::to_string(rank));
  environment.set("DUNLIN_LOCAL_SIZE", std::to_string(options.size));
  environment.set("DUNLIN_BOOTSTRAP_ADDRESS", address);
  environment.set("DUNLIN_COORDINATOR", "launcher");
  environment.set("DUNLIN_JOB_SECRET", kSecret);
  const Config job = Config::parse(environment).value();
  Config config = base;
  config.rank = job.rank;
  config.size = job.size;
  config.local_rank = job.local_rank;
  config.local_size = job.local_size;
  config.bootstrap_address = job.bootstrap_address;
  config.coordinator = job.coordinator;
  config.job_secret = job.job_secret;
  configure_log(config.log_level, Rank(rank));
  {
    auto bootstrap = Bootstrap::join(config, environment);
    if (bootstrap) {
      run_rank(**bootstrap, config, body);
    } else {
      ADD_FAILURE() << bootstrap.status().to_string();
    }
  }
  if (options.at_end) options.at_end();
  std::fflush(nullptr);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

// Whether each rank that is a process has a PID namespace of its own, as in a container.
bool uses_containers() {
  return std::getenv("CONFORMANCE_CONTAINERS") != nullptr;
}

constexpr int kKilledCode = 128 + SIGKILL;

// The first process of a container. The rank is its child, because a process cannot kill itself if
// it is the first one of its PID namespace.
[[noreturn]] void run_container(int rank, const RunOptions& options, int address_fd,
                                const Config& config, const RankBody& body) {
  const bool has_proc = unshare(CLONE_NEWNS) == 0 &&
                        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                        mount("proc", "/proc", "proc", 0, nullptr) == 0;
  const pid_t child = has_proc ? fork() : -1;
  if (child == 0) run_child(rank, options, address_fd, config, body);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) _exit(2);
  _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

// fork() into a new PID namespace.
pid_t fork_container() {
  const Fd own(open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC));
  if (!own.is_open() || unshare(CLONE_NEWPID) != 0) return -1;
  const pid_t child = fork();
  if (child > 0) {
    EXPECT_EQ(setns(own.get(), CLONE_NEWPID), 0);
  }
  return child;
}

#ifdef __SANITIZE_THREAD__
// The threads of this process, with that of the sanitizer.
std::ptrdiff_t count_threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}
#endif

void run_processes(const RunOptions& options, const Config& config, const RankBody& body) {
  if (uses_containers() && geteuid() != 0) GTEST_SKIP() << "PID namespaces need root";
#ifdef __SANITIZE_THREAD__
  // A child's threads would have the ids of threads that the sanitizer takes over from the parent.
  if (count_threads() > 2)
    GTEST_SKIP() << "the thread sanitizer can't follow a fork of a process with threads";
#endif
  // The children are forked while this process has one thread. They read the address from a pipe.
  int address_pipe[2];
  ASSERT_EQ(pipe(address_pipe), 0);
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < options.size; ++rank) {
    const pid_t child = uses_containers() ? fork_container() : fork();
    ASSERT_GE(child, 0) << strerror(errno);
    if (child == 0) {
      close(address_pipe[1]);
      if (uses_containers()) run_container(rank, options, address_pipe[0], config, body);
      run_child(rank, options, address_pipe[0], config, body);
    }
    children.push_back(child);
  }
  bootstrap::Coordinator::Options coordination;
  coordination.size = options.size;
  coordination.secret = kSecret;
  coordination.heartbeat = config.heartbeat;
  coordination.listen = {"127.0.0.1", 0};
  auto coordinator = bootstrap::Coordinator::start(coordination);
  ASSERT_TRUE(coordinator.is_ok()) << coordinator.status().to_string();
  char address[128] = {};
  std::snprintf(address, sizeof address, "127.0.0.1:%d", (*coordinator)->address().port);
  for (int rank = 0; rank < options.size; ++rank) {
    ASSERT_EQ(write(address_pipe[1], address, sizeof address - 1),
              static_cast<ssize_t>(sizeof address - 1));
  }
  close(address_pipe[0]);
  close(address_pipe[1]);
  for (int rank = 0; rank < options.size; ++rank) {
    int status = 0;
    ASSERT_EQ(waitpid(children[static_cast<std::size_t>(rank)], &status, 0),
              children[static_cast<std::size_t>(rank)]);
    if (options.killed.contains(rank)) {
      const bool was_killed = uses_containers()
                                  ? WIFEXITED(status) && WEXITSTATUS(status) == kKilledCode
                                  : WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      EXPECT_TRUE(was_killed) << "rank " << rank;
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << "rank " << rank << " ended with status " << status;
    }
  }
}

}  // namespace

int timeout_factor() {
  const char* const factor = std::getenv("CONFORMANCE_TIMEOUT_FACTOR");
  return factor == nullptr ? 1 : std::max(1, std::atoi(factor));
}

std::string to_string(PeerKind kind) {
  return kind == PeerKind::kThreads ? "threads" : "processes";
}

void run_ranks(const RunOptions& options, const RankBody& body) {
  (void)accept_membarriers();  // as Bootstrap::join() does, before the ranks' threads
  const Config config = configuration(options);
  if (options.kind == PeerKind::kThreads) {
    run_threads(options, config, body);
  } else {
    run_processes(options, config, body);
  }
}

Exposed::Exposed(Fabric& fabric, const std::string& name,
                 std::unique_ptr<transport::LocalRegion> local, std::size_t cells)
    : fabric_(fabric), local_(std::move(local)) {
  const transport::NotifyId own = fabric.board().allocate(cells).value();
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(own)).blob(local_->descriptor());
  const auto key = [&](int rank) { return name + "/" + std::to_string(rank); };
  EXPECT_TRUE(fabric.bootstrap().publish(key(fabric.rank().value()), writer.take()).is_ok());
  for (int rank = 0; rank < fabric.size(); ++rank) {
    const Bytes offer = fabric.bootstrap().lookup(key(rank), kTimeout * timeout_factor()).value();
    ByteReader reader(offer);
    cells_.push_back(transport::NotifyId(reader.number<std::uint32_t>()));
    auto region = fabric.import_region(Rank(rank), reader.blob());
    EXPECT_TRUE(region.is_ok()) << region.status().to_string();
    remote_.push_back(std::move(region).value());
  }
  // All ranks must have imported a region before it is destroyed.
  sync(fabric, name + "/imported");
}

transport::NotifyId Exposed::cell_at(int rank, std::size_t index) const {
  return transport::NotifyId(static_cast<std::uint32_t>(
      static_cast<std::size_t>(cells_[static_cast<std::size_t>(rank)]) + index));
}

bool progress_until(Fabric& fabric, const std::function<bool()>& done) {
  const TimePoint deadline = fabric.clock().now() + kTimeout * timeout_factor();
  while (!done()) {
    if (fabric.clock().now() >= deadline) return false;
    if (fabric.progress() == 0) std::this_thread::yield();
  }
  return true;
}

Status post(Fabric& fabric, const std::function<Status()>& operation) {
  Status status = Status::busy();
  if (!progress_until(fabric, [&] { return !(status = operation()).is_busy(); })) {
    return {Code::kDeadlineExceeded, "still busy at the deadline"};
  }
  return status;
}

Status complete(Fabric& fabric, const std::function<Status(transport::Completion*)>& operation) {
  transport::Completion completion;
  DUNLIN_TRY(post(fabric, [&] { return operation(&completion); }));
  if (!progress_until(fabric, [&] { return completion.is_done(); }))
    return {Code::kDeadlineExceeded, "no completion"};
  return completion.status();
}

transport::Notification notification(transport::NotifyId id, std::uint64_t sequence) {
  transport::Notification made;
  made.id = id;
  made.sequence = sequence;
  return made;
}

bool await_cell(Fabric& fabric, transport::NotifyId cell, std::uint64_t sequence) {
  return progress_until(fabric, [&] { return fabric.board().sequence(cell) >= sequence; });
}

void sync(Fabric& fabric, const std::string& name) {
  EXPECT_TRUE(await_all(fabric, name)) << name;
}

void connect_all(Fabric& fabric, const std::string& name) {
  const int self = fabric.rank().value();
  Exposed memory(fabric, name, 64, 2 * static_cast<std::size_t>(fabric.size()));
  const auto cell = [](int of, bool is_control) {
    return 2 * static_cast<std::size_t>(of) + (is_control ? 1 : 0);
  };
  for (const bool is_control : {false, true}) {
    for (int peer = 0; peer < fabric.size(); ++peer) {
      if (peer == self) continue;
      auto& lane = is_control ? memory.link(peer).control() : memory.link(peer).data();
      const auto sent = notification(memory.cell_at(peer, cell(self, is_control)), 1);
      EXPECT_TRUE(post(fabric, [&] { return lane.notify(sent, nullptr); }).is_ok());
    }
  }
  for (const bool is_control : {false, true}) {
    for (int peer = 0; peer < fabric.size(); ++peer) {
      if (peer == self) continue;
      EXPECT_TRUE(await_cell(fabric, memory.cell(cell(peer, is_control)), 1));
    }
  }
  sync(fabric, name + " done");
}

void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
}

bool is_filled(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (const std::byte byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    if (byte != static_cast<std::byte>(state >> 56)) return false;
  }
  return true;
}

}  // namespace dunlin::testing
