// A mutex among ranks protects a counter in rank 0's memory, which each rank reads, increments and
// writes back with one-sided operations.
//
//   dunlin-run -n 4 mutex
#include <dunlin/lane.h>
#include <dunlin/mutex.h>

#include <chrono>
#include <cstdio>

using dunlin::Completion;
using dunlin::Rank;
using dunlin::Status;

static constexpr auto kTimeout = std::chrono::seconds(30);
static constexpr std::uint64_t kTurns = 50;

static Status increment(dunlin::Lane& lane, const dunlin::Memory& own,
                        const dunlin::RemoteMemorySlice& counter) {
  DUNLIN_ASSIGN(const auto value, own.slice(0, counter.size()));
  Completion read;
  DUNLIN_TRY(lane.get(counter, value, &read));
  DUNLIN_TRY(lane.wait(read, kTimeout));
  ++own.as<std::uint64_t>()[0];
  DUNLIN_TRY(lane.put(value, counter, nullptr));
  // The next rank has to find the new value: the mutex orders nothing but itself.
  Completion visible;
  DUNLIN_TRY(lane.flush(dunlin::Visibility::kRemote, &visible));
  return lane.wait(visible, kTimeout);
}

static Status count(dunlin::Job& job) {
  DUNLIN_ASSIGN(const auto memory, dunlin::Memory::allocate(job, sizeof(std::uint64_t)));
  DUNLIN_TRY(memory.share("counter"));
  DUNLIN_ASSIGN(const auto own, dunlin::Memory::allocate(job, sizeof(std::uint64_t)));
  DUNLIN_ASSIGN(const auto remote, dunlin::RemoteMemory::open(job, Rank(0), "counter", kTimeout));
  DUNLIN_ASSIGN(const auto counter, remote.slice(0, sizeof(std::uint64_t)));
  DUNLIN_ASSIGN(auto lane, dunlin::Lane::open(job, Rank(0)));
  DUNLIN_ASSIGN(auto mutex, dunlin::Mutex::create(job, {.name = "counter"}));
  if (!lane.has_get()) {
    std::printf("skipped: this transport has no remote reads\n");
    return job.barrier();
  }
  for (std::uint64_t turn = 0; turn < kTurns; ++turn) {
    DUNLIN_TRY(mutex.lock(kTimeout).status());
    DUNLIN_TRY(increment(lane, own, counter));
    DUNLIN_TRY(mutex.unlock(kTimeout));
  }
  DUNLIN_TRY(job.barrier());
  const std::uint64_t total = kTurns * static_cast<std::uint64_t>(job.size());
  if (job.rank() == Rank(0)) {
    if (memory.as<std::uint64_t>()[0] != total)
      return {dunlin::Code::kInternal, "an increment was lost"};
    std::printf("%d ranks counted to %d\n", job.size(), static_cast<int>(total));
  }
  return job.barrier();
}

static Status run() {
  DUNLIN_ASSIGN(auto job, dunlin::Job::join());
  DUNLIN_TRY(count(job));
  return job.leave();
}

int main() {
  const Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status ? 0 : 1;
}
