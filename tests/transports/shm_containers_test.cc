// Ranks that have a PID namespace each, as in containers, over the shm transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using ::testing::HasSubstr;
using transport::Fabric;

class Containers : public ::testing::Test {
 protected:
  void SetUp() override { setenv("CONFORMANCE_CONTAINERS", "1", 1); }
  void TearDown() override { unsetenv("CONFORMANCE_CONTAINERS"); }
  static RunOptions over_shm(std::set<int> killed) {
    return {.kind = PeerKind::kProcesses,
            .size = 2,
            .killed = std::move(killed),
            .configure = [](Config& config) { config.transports = {"shm"}; }};
  }
};

TEST_F(Containers, PeersHaveNoProcessIdHereButAPidfd) {
  run_ranks(over_shm({1}), [](Fabric& fabric) {
    const Rank peer(1 - fabric.rank().value());
    ASSERT_TRUE(fabric.link(peer).is_ok()) << fabric.explain(peer);
    EXPECT_EQ(fabric.transport_of(peer), "shm");
    EXPECT_EQ(fabric.peers().local_pid(peer), PeerTable::kForeignPid);
    EXPECT_FALSE(fabric.peers().has_ended(peer));
    sync(fabric, "connected");
    if (fabric.rank() == Rank(1)) raise(SIGKILL);
    EXPECT_TRUE(progress_until(fabric, [&] { return fabric.peers().has_ended(peer); }));
    EXPECT_THAT(fabric.peers().diagnose(peer), HasSubstr("has ended"));
    EXPECT_TRUE(progress_until(fabric, [&] { return !fabric.peers().is_present(peer); }));
  });
}

TEST_F(Containers, ARegionThatWasDeregisteredCannotBeImported) {
  run_ranks(over_shm({}), [](Fabric& fabric) {
    if (fabric.rank() == Rank(0)) {
      auto region = fabric.allocate(4096).value();
      const Bytes descriptor = region->descriptor();
      region.reset();
      EXPECT_TRUE(fabric.bootstrap().publish("region", descriptor).is_ok());
    } else {
      const Bytes descriptor =
          fabric.bootstrap().lookup("region", std::chrono::seconds(30)).value();
      const Status status = fabric.import_region(Rank(0), descriptor).status();
      EXPECT_EQ(status.code(), Code::kNotFound) << status.to_string();
      EXPECT_EQ(status.peer(), Rank(0));
    }
    sync(fabric, "tried");
  });
}

}  // namespace
}  // namespace dunlin::testing
