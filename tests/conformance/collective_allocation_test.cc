// A collective that was called before takes nothing from the heap. Allocations are counted per
// thread, so that other threads don't disturb the count.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

#include "collectives/communicator/communicator.h"
#include "runtime/flight/reader.h"
#include "runtime/flight/recorder.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

namespace {
thread_local std::size_t allocations = 0;

void* allocate(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), bytes) != 0)
    throw std::bad_alloc();
  return memory;
}
}  // namespace

// Not inlined, since the compiler warns if it sees a free() of what an operator new has returned.
void* operator new(std::size_t bytes) {
  return allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace dunlin::testing {
namespace {

using collective::Algorithm;
using collective::Call;
using collective::Collective;
using collective::Communicator;
using collective::Problem;
using transport::Fabric;

constexpr int kSize = 4;
constexpr int kWarm = 20;  // more than once in every turn of the communicator's operations
constexpr int kMeasured = 2 * kWarm;
// A member that has waited for 200 ms asks whether the others make another call, and that takes
// memory. On a busy host any call may wait for that long, so calls that take longer than this don't
// count.
constexpr auto kLongestCounted = std::chrono::milliseconds(150);

// Runs each algorithm many times. One rank is `lateness` late, so that the others wait for it. At
// least half of the calls have to be short enough to count.
void expect_no_allocations(Fabric& fabric, Duration lateness) {
  auto made = Communicator::create(fabric, {});
  ASSERT_TRUE(made.is_ok()) << made.status().to_string();
  Communicator& communicator = **made;
  const auto memory = communicator.allocate(std::size_t{4} << 20).value();
  for (const Algorithm& algorithm : collective::algorithms()) {
    if (algorithm.needs_mapped_peers && !communicator.is_all_mapped()) continue;
    for (const std::size_t count : {std::size_t{8}, std::size_t{100'000}}) {
      Problem problem;
      problem.collective = algorithm.collective;
      problem.size = kSize;
      problem.count = count / kSize;
      Call call;
      call.collective = algorithm.collective;
      call.input = memory.data();
      call.output = memory.data() + memory.size() / 2;
      if (algorithm.collective == Collective::kBroadcast) call.output = memory.data();
      call.count = problem.count;
      call.algorithm = algorithm.name;
      std::size_t taken = 0;
      int counted = 0;
      for (int i = 0; i < kWarm + kMeasured; ++i) {
        if (fabric.rank() == Rank(1)) std::this_thread::sleep_for(lateness);
        const std::size_t before = allocations;
        const TimePoint began = fabric.clock().now();
        const Status status = communicator.run(call);
        const bool is_short = fabric.clock().now() - began < kLongestCounted;
        const std::size_t after = allocations;
        ASSERT_TRUE(status.is_ok()) << algorithm.name << ": " << status.to_string();
        if (i < kWarm || !is_short) continue;
        ++counted;
        taken += after - before;
      }
      EXPECT_EQ(taken, 0u) << to_string(algorithm.collective) << " " << algorithm.name << ", "
                           << call.count << " elements: in " << counted << " calls";
      EXPECT_GE(counted, kMeasured / 2)
          << to_string(algorithm.collective) << " " << algorithm.name << ", " << call.count
          << " elements: too many calls took long";
    }
  }
  sync(fabric, "the communicator can go");
}

TEST(CollectiveAllocation, IsDoneInTheFirstCalls) {
  run_ranks({.kind = PeerKind::kThreads, .size = kSize, .killed = {}, .configure = {}},
            [](Fabric& fabric) { expect_no_allocations(fabric, Duration::zero()); });
}

TEST(CollectiveAllocation, IsNotNeededForTheFlightRecord) {
  const TempFolder folder;
  run_ranks({.kind = PeerKind::kThreads, .size = kSize, .killed = {}, .configure = {}},
            [&](Fabric& fabric) {
              auto recorder = flight::Recorder::create(
                  {folder.file("base") + "/job", "job", fabric.rank(), kSize, false},
                  fabric.clock());
              ASSERT_TRUE(recorder.is_ok()) << recorder.status().to_string();
              fabric.record_in(recorder->get());
              expect_no_allocations(fabric, std::chrono::microseconds(200));
              const auto record = flight::Record::open((*recorder)->path());
              ASSERT_TRUE(record.is_ok()) << record.status().to_string();
              const flight::Snapshot now = record->snapshot(fabric.clock().now());
              EXPECT_GT(now.operations, 1000u);
              if (fabric.rank() != Rank(1)) {
                EXPECT_GT(now.waited, Duration::zero());
              }
              fabric.record_in(nullptr);
            });
}

// Tests the test: an allocation is counted.
TEST(CollectiveAllocation, IsCounted) {
  const std::size_t before = allocations;
  const auto memory = std::make_unique<std::vector<int>>(100);
  EXPECT_EQ(memory->size(), 100u);
  EXPECT_GE(allocations - before, 2u);
}

}  // namespace
}  // namespace dunlin::testing
