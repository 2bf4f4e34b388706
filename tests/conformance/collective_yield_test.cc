// Ranks that share cores yield before they poll twice, since the peer may need the core. This
// program replaces sched_yield() with a function that counts, and then calls the kernel's.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "collectives/communicator/communicator.h"
#include "runtime/topology.h"
#include "tests/support/ranks.h"

namespace {
thread_local long yields = 0;
}  // namespace

// Takes precedence over libc's function, for the library as well.
extern "C" int sched_yield() noexcept {
  ++yields;
  return static_cast<int>(syscall(SYS_sched_yield));
}

namespace dunlin::testing {
namespace {

using collective::Call;
using collective::Collective;
using collective::Communicator;
using transport::Fabric;

// How often rank 0 polls a barrier that the other rank has not entered, before its first yield.
long polls_before_the_first_yield(std::uint64_t spin_iterations) {
  std::atomic<long> polls = 0;
  const RunOptions options{
      .kind = PeerKind::kThreads, .size = 2, .killed = {}, .configure = [&](Config& config) {
        config.wait = WaitMode::kAuto;
        config.spin_iterations = spin_iterations;
      }};
  run_ranks(options, [&](Fabric& fabric) {
    auto made = Communicator::create(fabric, {});
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    Communicator& communicator = **made;
    Call barrier;
    barrier.collective = Collective::kBarrier;
    const auto timeout = timeout_factor() * std::chrono::seconds(30);
    if (fabric.rank() == Rank(1)) sync(fabric, "rank 0 has polled");
    const auto request = communicator.start(barrier);
    ASSERT_TRUE(request.is_ok()) << request.status().to_string();
    if (fabric.rank() == Rank(0)) {
      const long before = yields;
      const Status status = communicator.wait(*request, timeout, [&] {
        if (yields != before) return Status(Code::kClosed, "it has yielded");
        ++polls;
        return Status::ok();
      });
      EXPECT_EQ(status.code(), Code::kClosed) << status.to_string();
      sync(fabric, "rank 0 has polled");
    }
    const Status status = communicator.wait(*request, timeout);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    sync(fabric, "the communicator can go");
  });
  return polls;
}

TEST(CollectiveYield, ComesAfterOnePollIfRanksDoNotSpin) {
  EXPECT_EQ(polls_before_the_first_yield(0), 1);
}

TEST(CollectiveYield, ComesAfterTheSpinsIfRanksHaveCores) {
  constexpr std::uint64_t kSpins = 100;
  if (cores_shared_by(2) < 2) GTEST_SKIP() << "one core for two ranks";
  EXPECT_GT(polls_before_the_first_yield(kSpins), static_cast<long>(kSpins));
}

}  // namespace
}  // namespace dunlin::testing
