// Ranks that share cores give theirs away before they look twice: the one that is waited for may
// need it. Here sched_yield() is the test's, which counts before it calls the kernel's.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "collectives/communicator.h"
#include "runtime/topology.h"
#include "tests/support/ranks.h"

namespace {
thread_local long yields = 0;
}  // namespace

// Goes before libc's, for the library as well.
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

// How often rank 0 looked at a barrier, that nobody else has entered, before its first yield.
long looks_before_the_first_yield(std::uint64_t spin_iterations) {
  std::atomic<long> looks = 0;
  const RunOptions options{
      .kind = PeerKind::kThreads, .size = 2, .killed = {}, .configure = [&](Config& config) {
        config.wait = WaitMode::kYield;
        config.spin_iterations = spin_iterations;
      }};
  run_ranks(options, [&](Fabric& fabric) {
    auto made = Communicator::create(fabric, {});
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    Communicator& communicator = **made;
    Call barrier;
    barrier.collective = Collective::kBarrier;
    const auto patient = patience() * std::chrono::seconds(30);
    if (fabric.rank() == Rank(1)) sync(fabric, "rank 0 has looked");
    const auto request = communicator.start(barrier);
    ASSERT_TRUE(request.is_ok()) << request.status().to_string();
    if (fabric.rank() == Rank(0)) {
      const long before = yields;
      const Status status = communicator.wait(*request, patient, [&] {
        if (yields != before) return Status(Code::kClosed, "it has yielded");
        ++looks;
        return Status::ok();
      });
      EXPECT_EQ(status.code(), Code::kClosed) << status.to_string();
      sync(fabric, "rank 0 has looked");
    }
    const Status status = communicator.wait(*request, patient);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    sync(fabric, "the communicator can go");
  });
  return looks;
}

TEST(CollectiveYield, ComesAfterOneLookWhereRanksDoNotSpin) {
  EXPECT_EQ(looks_before_the_first_yield(0), 1);
}

TEST(CollectiveYield, ComesAfterTheSpinsWhereRanksHaveCores) {
  constexpr std::uint64_t kSpins = 100;
  if (cores_shared_by(2) < 2) GTEST_SKIP() << "one core for two ranks";
  EXPECT_GT(looks_before_the_first_yield(kSpins), static_cast<long>(kSpins));
}

}  // namespace
}  // namespace dunlin::testing
