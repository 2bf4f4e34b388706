// A peer whose access was revoked changes nothing any more, though it lives and goes on writing.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>

#include "runtime/config.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr int kAttempts = 200;

// Rank 1 puts all the time, pieces that travel in messages and pieces that travel alone. It doesn't
// know that rank 0 counts it as dead.
void write_until(Fabric& fabric, Exposed& exposed, const std::atomic<bool>& is_revoked) {
  std::deque<Completion> outstanding;
  fill({exposed.local().data(), kBytes}, 7);
  int left = kAttempts;  // after rank 0 has revoked the access
  for (int attempts = 0; left > 0; ++attempts) {
    if (is_revoked) --left;
    const std::size_t size = attempts % 2 == 0 ? kBytes / 4 : 64;
    const std::size_t offset = static_cast<std::size_t>(attempts) * 64 % (kBytes / 2);
    Completion& completion = outstanding.emplace_back();
    const Status status =
        exposed.data(0).put(exposed.local().slice(offset, size).value(),
                            exposed.at(0).slice(offset, size).value(), &completion);
    if (!status.is_ok()) outstanding.pop_back();
    fabric.progress();
    while (!outstanding.empty() && outstanding.front().is_done()) outstanding.pop_front();
  }
  exposed.data(0).close();
}

TEST(Revoke, APeerThatLivesWritesNoMore) {
  if (Config::from_environment().value().transports.front() == "shm") {
    GTEST_SKIP() << "a process on this host stores by itself, and is revoked when it has ended";
  }
  std::atomic<bool> is_revoked{false};
  std::atomic<bool> is_writing{false};
  std::atomic<bool> is_over{false};
  run_ranks(
      {.kind = PeerKind::kThreads, .size = 2, .killed = {}, .configure = {}}, [&](Fabric& fabric) {
        // A death while UCX connects over TCP may abort the process (transports/ucx/README.md).
        connect_all(fabric, "connected");
        Exposed exposed(fabric, "memory", kBytes, 1);
        if (fabric.rank() == Rank(1)) {
          ASSERT_TRUE(complete(fabric, [&](Completion* done) {
                        return exposed.data(0).put_notify(exposed.local().slice(0, 64).value(),
                                                          exposed.at(0).slice(0, 64).value(),
                                                          notification(exposed.cell_at(0, 0), 1),
                                                          done);
                      }).is_ok());
          is_writing = true;
          write_until(fabric, exposed, is_revoked);
          is_over = true;
          return;
        }
        ASSERT_TRUE(await_cell(fabric, exposed.cell(0), 1));
        const auto bytes = std::span(exposed.local().data(), kBytes);
        ASSERT_TRUE(progress_until(fabric, [&] {
          return is_writing && std::any_of(bytes.begin(), bytes.end(),
                                           [](std::byte each) { return each != std::byte{}; });
        }));
        fabric.peers().mark(Rank(1), PeerState::kDead, "by the test");
        fabric.bootstrap().fences().on_revoke(Rank(1));
        ASSERT_TRUE(progress_until(fabric, [&] { return !fabric.bootstrap().fences().has_due(); }));
        std::fill(bytes.begin(), bytes.end(), std::byte{});
        is_revoked = true;
        EXPECT_TRUE(progress_until(fabric, [&] { return is_over.load(); }));
        for (int turn = 0; turn < 10'000; ++turn) fabric.progress();
        EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(),
                                [](std::byte each) { return each == std::byte{}; }));
      });
}

}  // namespace
}  // namespace dunlin::testing
