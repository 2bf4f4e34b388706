// A rank of a job whose ranks run in containers of one host, for tests.
//
//   container_rank [wait]
//
// It prints how it reaches each peer, exercises collectives, a window, a mutex and memory that
// Dunlin did not allocate, and prints "all of it works". With "wait", rank 1 then does nothing any
// more until a signal ends it, and the others wait for it.
#include <dunlin/communicator.h>
#include <dunlin/graph.h>
#include <dunlin/lane.h>
#include <dunlin/memory.h>
#include <dunlin/mutex.h>
#include <dunlin/window.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace {

using dunlin::Job;
using dunlin::Rank;
using dunlin::Status;

constexpr auto kTimeout = std::chrono::seconds(60);

Status wrong(const std::string& what) {
  return {dunlin::Code::kCorrupted, what + " gave a wrong result"};
}

Status all_reduce(Job& job) {
  DUNLIN_ASSIGN(auto world, dunlin::Communicator::create(job));
  for (const std::size_t count : {std::size_t{1}, std::size_t{1} << 20}) {
    DUNLIN_ASSIGN(const std::span<float> values, world.allocate<float>(count));
    for (float& value : values) value = static_cast<float>(job.rank().value() + 1);
    DUNLIN_TRY(world.all_reduce(values, dunlin::ReduceOp::kSum));
    const auto expected = static_cast<float>(job.size() * (job.size() + 1) / 2);
    for (const float value : values) {
      if (value != expected) return wrong("an all-reduce");
    }
  }
  return world.barrier();
}

Status window(Job& job) {
  DUNLIN_ASSIGN(const auto graph, dunlin::make_graph("ring", job.size()));
  dunlin::WindowOptions options{.count = 1000, .is_zeroed = true};
  DUNLIN_ASSIGN(options.neighborhood, dunlin::neighborhood_of(graph, dunlin::Weighting::kUniform,
                                                              job.members().ranks, job.rank()));
  const std::vector<double> initial(options.count, job.rank().value() + 1);
  DUNLIN_ASSIGN(auto window, dunlin::Window<double>::create(job, options, initial));
  std::vector<dunlin::WeightedRank> to;
  for (const Rank rank : options.neighborhood.out) to.push_back({rank, 1.0});
  DUNLIN_TRY(window.put(to));
  DUNLIN_TRY(window.flush(kTimeout));
  DUNLIN_TRY(job.barrier());
  for (const Rank neighbor : options.neighborhood.in) {
    DUNLIN_ASSIGN(const auto buffer, window.buffer(neighbor));
    if (buffer.tensor.back() != neighbor.value() + 1) return wrong("a window");
  }
  return job.barrier();
}

// The mutex protects a counter at rank 0, which all ranks read, increase and write back.
Status mutex(Job& job) {
  constexpr std::uint64_t kRounds = 100;
  DUNLIN_ASSIGN(auto mutex, dunlin::Mutex::create(job, {}));
  DUNLIN_ASSIGN(auto counter, dunlin::Memory::allocate(job, 8));
  if (job.rank() == Rank(0)) DUNLIN_TRY(counter.share("counter"));
  DUNLIN_ASSIGN(auto shared, dunlin::RemoteMemory::open(job, Rank(0), "counter", kTimeout));
  if (shared.mapped() == nullptr) return wrong("mapping the counter");
  const std::atomic_ref value(*reinterpret_cast<std::uint64_t*>(shared.mapped()));
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    DUNLIN_TRY(mutex.lock(kTimeout).status());
    value.store(value.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    DUNLIN_TRY(mutex.unlock(kTimeout));
  }
  DUNLIN_TRY(job.barrier());
  if (value.load() != kRounds * static_cast<std::uint64_t>(job.size())) return wrong("a mutex");
  return job.barrier();
}

// Each rank puts to memory of the next one that is an ordinary array there.
Status wrapped_memory(Job& job) {
  const int next = (job.rank().value() + 1) % job.size();
  std::vector<std::byte> array(100'000);
  std::vector<std::byte> source(array.size(), std::byte(next + 1));
  DUNLIN_ASSIGN(auto inbox, dunlin::Memory::wrap(job, array.data(), array.size()));
  DUNLIN_ASSIGN(auto outbox, dunlin::Memory::wrap(job, source.data(), source.size()));
  DUNLIN_TRY(inbox.share("inbox of " + std::to_string(job.rank().value())));
  DUNLIN_ASSIGN(auto remote, dunlin::RemoteMemory::open(
                                 job, Rank(next), "inbox of " + std::to_string(next), kTimeout));
  DUNLIN_ASSIGN(auto lane, dunlin::Lane::open(job, Rank(next)));
  dunlin::Completion done;
  DUNLIN_TRY(lane.put(outbox.whole(), remote.whole(), &done));
  DUNLIN_TRY(lane.wait(done, kTimeout));
  DUNLIN_TRY(job.barrier());
  for (const std::byte byte : array) {
    if (byte != std::byte(job.rank().value() + 1)) return wrong("a put to an array");
  }
  return job.barrier();
}

Status run(bool waits) {
  DUNLIN_ASSIGN(auto job, Job::join());
  bool is_shared = true;
  for (int peer = 0; peer < job.size(); ++peer) {
    if (peer == job.rank().value()) continue;
    const std::string how = job.explain(Rank(peer));
    is_shared = is_shared && how.starts_with("shm");
    std::printf("to rank %d: %s\n", peer, how.c_str());
  }
  std::fflush(stdout);
  DUNLIN_TRY(all_reduce(job));
  DUNLIN_TRY(window(job));
  if (is_shared) DUNLIN_TRY(mutex(job));
  DUNLIN_TRY(wrapped_memory(job));
  std::printf("process %d: all of it works\n", static_cast<int>(getpid()));
  std::fflush(stdout);
  if (waits) {
    DUNLIN_TRY(job.barrier());
    std::printf("waits\n");
    std::fflush(stdout);
    while (job.rank() == Rank(1)) pause();
    DUNLIN_TRY(job.wait([] { return Status::busy(); }, Rank(1), "the end", kTimeout));
  }
  return job.leave();
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = run(argc == 2 && std::string_view(argv[1]) == "wait");
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status ? 0 : 1;
}
