// The verbs transport on devices that the guests' Soft-RoCE is not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/transports/verbs_device.h"
#include "transports/verbs/connect/session.h"
#include "transports/verbs/connect/wire.h"
#include "transports/verbs/constants.h"
#include "transports/verbs/device/device.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;
using transport::verbs::DeviceAddress;
using transport::verbs::find_addresses;
using transport::verbs::PortAddress;

constexpr std::size_t kSize = 8192;
constexpr std::size_t kSmall = 20;

class VerbsDeviceTest : public VerbsDeviceTestBase {
 protected:
  // Rank 0 puts bytes of this seed, and rank 1 finds them.
  static void exchange(Fabric& fabric, Exposed& memory, std::uint64_t seed) {
    if (fabric.rank() == Rank(0)) {
      fill(memory.local().memory()->bytes(), seed);
      for (const std::size_t size : {kSmall, kSize - kSmall}) {
        const std::size_t offset = size == kSmall ? 0 : kSmall;
        const auto from = memory.local().slice(offset, size).value();
        const auto to = memory.at(1).slice(offset, size).value();
        const Status status = post(fabric, [&] { return memory.data(1).put(from, to, nullptr); });
        ASSERT_TRUE(status.is_ok()) << status.to_string();
      }
      const Status status = complete(fabric, [&](Completion* c) {
        return memory.data(1).notify(notification(memory.cell_at(1, 0), seed), c);
      });
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    } else {
      ASSERT_TRUE(await_cell(fabric, memory.cell(0), seed));
      EXPECT_TRUE(is_filled(memory.local().memory()->bytes().first(kSize), seed));
    }
  }

  // The device gives up soon what it can't send, so that a hang is noticed after two seconds.
  static void answer_soon(Config& config) {
    config.verbs_timeout = 10;
    config.verbs_retry_count = 1;
  }

  // The queue pair that gets the first request for which this is true hangs.
  void hang_at(const std::function<bool(const ibv_send_wr&)>& is_it) {
    device_.change([&](FakeVerbs::Options& options) {
      options.hangs_at = [is_it, has_hung = false](const ibv_send_wr& request) mutable {
        return is_it(request) && !std::exchange(has_hung, true);
      };
    });
  }

  void run_exchange() {
    run([](Fabric& fabric) {
      Exposed memory(fabric, "memory", kSize, 1);
      exchange(fabric, memory, 1);
      sync(fabric, "done");
    });
  }
};

TEST_F(VerbsDeviceTest, InlineSizesStepDownToWhatTheDeviceGrants) {
  using Case = std::pair<std::uint32_t, std::uint32_t>;
  for (const auto& [most, expected] :
       {Case{236, 128}, Case{128, 128}, Case{101, 96}, Case{64, 64}, Case{28, 24}}) {
    make({.most_inline = most});
    run_exchange();
    const auto sizes = device_.inline_sizes();
    ASSERT_FALSE(sizes.empty()) << most;
    EXPECT_TRUE(std::ranges::all_of(sizes, [&](auto size) { return size == expected; })) << most;
  }
  make({.most_inline = 0});
  run_exchange();
  EXPECT_TRUE(device_.inline_sizes().empty());
}

TEST_F(VerbsDeviceTest, ConnectionsBelongToTheWantedPartition) {
  // The same partition as a limited member comes first in the table.
  const std::vector<std::uint16_t> table = {0xffff, 0x0012, 0x8001, 0x8012, 0};
  struct Case {
    const char* wanted;
    std::uint16_t index;
  };
  for (const Case& one :
       {Case{"", 0}, {"0x8001", 2}, {"0x1", 2}, {"0x12", 3}, {"1", 1}, {"3", 3}}) {
    configure_ = [&](Config& config) { config.verbs_pkey = one.wanted; };
    make({.pkeys = table});
    run_exchange();
    const auto connections = device_.connections();
    ASSERT_FALSE(connections.empty());
    for (const auto& each : connections) EXPECT_EQ(each.pkey_index, one.index) << one.wanted;
  }
  for (const char* const wrong : {"0x7777", "4", "17", "two", "0x", "0x10000", "-1"}) {
    configure_ = [&](Config& config) { config.verbs_pkey = wrong; };
    EXPECT_NE(refusal().find("DUNLIN_VERBS_PKEY"), std::string::npos) << wrong << ": " << refusal();
  }
  make({.is_infiniband = false, .gids = {FakeVerbs::gid("::ffff:10.0.0.1")}});
  configure_ = [&](Config& config) {
    config.verbs_pkey = "0xffff";
    config.verbs_connect = VerbsConnect::kManager;
  };
  EXPECT_NE(refusal().find("DUNLIN_VERBS_CONNECT=manager"), std::string::npos) << refusal();
}

TEST_F(VerbsDeviceTest, PortsThatRequireItGetGlobalRoutes) {
  for (const bool requires_it : {false, true}) {
    make({.port_flags = requires_it ? std::uint8_t{IBV_QPF_GRH_REQUIRED} : std::uint8_t{0}});
    run_exchange();
    for (const auto& each : device_.connections()) EXPECT_EQ(each.route.is_global, requires_it);
  }
  make({.is_infiniband = false, .gids = {FakeVerbs::gid("::ffff:10.0.0.1")}});
  run_exchange();
  for (const auto& each : device_.connections()) EXPECT_EQ(each.route.is_global, 1);
}

TEST_F(VerbsDeviceTest, IpAddressesComeBeforeLinkLocalOnes) {
  const auto link = FakeVerbs::gid("fe80::2");
  const auto old = FakeVerbs::gid("::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V1);
  const auto ipv6 = FakeVerbs::gid("2001:db8::5");
  const auto ipv4 = FakeVerbs::gid("::ffff:10.0.0.1");
  const auto choice = [&](std::vector<FakeVerbs::Gid> gids, int index = -1) {
    make({.is_infiniband = false, .gids = std::move(gids)});
    return find_addresses("", index, {}).value().at(0);
  };
  const auto check = [](const DeviceAddress& found, int index, const std::string& ip) {
    EXPECT_EQ(found.gid_index, index);
    EXPECT_EQ(found.ip, ip);
  };
  check(choice({link, old, ipv6, ipv4}), 3, "10.0.0.1");
  check(choice({old, link, ipv6}), 2, "2001:db8::5");
  check(choice({old, link}), 1, "");
  check(choice({link, ipv6, ipv4}, 1), 1, "2001:db8::5");
  for (const char* const ip : {"10.0.0.1", "2001:db8::5"}) {
    auto parsed = transport::verbs::SocketAddress::parse(ip, 9);
    ASSERT_TRUE(parsed.is_ok());
    EXPECT_EQ(parsed->get()->sa_family, std::strchr(ip, ':') == nullptr ? AF_INET : AF_INET6);
  }
  EXPECT_FALSE(transport::verbs::SocketAddress::parse("10.0.0", 9).is_ok());
  make({.is_infiniband = false, .gids = {link, ipv6}});
  run_exchange();
  for (const auto& each : device_.connections()) EXPECT_EQ(each.route.grh.sgid_index, 1);
}

// A job of N ranks would ask the subnet manager for the paths of 2 N^2 connections.
TEST_F(VerbsDeviceTest, TheManagerIsNotUsedWithinASubnet) {
  const PortAddress here{"10.0.0.1", 4000, true, 1};
  const PortAddress near{"10.0.0.2", 4000, true, 1};
  const PortAddress beyond{"10.0.0.3", 4000, true, 2};
  const PortAddress ethernet{"10.0.0.4", 4000};
  const PortAddress other{"10.0.0.5", 4000};
  const PortAddress wide{"2001:db8::5", 4000};
  const PortAddress nameless{};
  PortAddress insisting = near;
  insisting.prefers_manager = true;
  const auto decide = [](const PortAddress& one, const PortAddress& two) {
    EXPECT_EQ(is_by_manager(one, two), is_by_manager(two, one));
    EXPECT_EQ(can_connect(one, two), can_connect(two, one));
    return std::pair(is_by_manager(one, two), can_connect(one, two));
  };
  EXPECT_EQ(decide(here, near), std::pair(false, true));
  EXPECT_EQ(decide(here, insisting), std::pair(true, true));
  EXPECT_EQ(decide(here, beyond), std::pair(true, true));
  EXPECT_EQ(decide(ethernet, other), std::pair(true, true));
  EXPECT_EQ(decide(ethernet, nameless), std::pair(false, true));
  // A GID of IPv4 doesn't reach one of IPv6.
  EXPECT_EQ(decide(ethernet, wide), std::pair(false, false));
  EXPECT_EQ(decide(here, nameless), std::pair(false, false));
}

// While a link is down, the subnet manager or the host may give the port other addresses.
TEST_F(VerbsDeviceTest, AddressesAreReadAgainForANewConnection) {
  const auto moving = FakeVerbs::gid("::ffff:10.0.0.1");
  make({.is_infiniband = false, .gids = {FakeVerbs::gid("fe80::2"), moving}});
  run([&](Fabric& fabric) {
    Exposed memory(fabric, "memory", kSize, 1);
    exchange(fabric, memory, 1);
    sync(fabric, "first");
    if (fabric.rank() == Rank(0)) {
      device_.change([&](FakeVerbs::Options& options) {
        options.lid = 9;
        options.gids.insert(options.gids.begin(), 2, FakeVerbs::gid("fe80::3"));
      });
      device_.break_connections();
    }
    sync(fabric, "second");
    exchange(fabric, memory, 2);
    sync(fabric, "done");
  });
  const auto connections = device_.connections();
  EXPECT_EQ(connections.front().route.grh.sgid_index, 1);
  EXPECT_EQ(connections.front().route.dlid, 7);
  EXPECT_EQ(connections.back().route.grh.sgid_index, 3);
  EXPECT_EQ(connections.back().route.dlid, 9);
  EXPECT_EQ(std::memcmp(connections.back().route.grh.dgid.raw, moving.gid.raw, 16), 0);
}

// What was posted to a queue pair that has hung is carried out over another one.
TEST_F(VerbsDeviceTest, AQueuePairThatHangsIsReplaced) {
  make();
  configure_ = answer_soon;
  run([&](Fabric& fabric) {
    Exposed memory(fabric, "memory", kSize, 1);
    exchange(fabric, memory, 1);
    sync(fabric, "first");
    if (fabric.rank() == Rank(0)) hang_at([](const ibv_send_wr&) { return true; });
    sync(fabric, "second");
    exchange(fabric, memory, 2);
    sync(fabric, "done");
  });
  EXPECT_EQ(device_.hung_pairs(), 1U);
}

// The receiver's queue pair hangs as it returns credits, for which the sender would wait.
TEST_F(VerbsDeviceTest, AQueuePairThatHangsWithCreditsIsReplaced) {
  make();
  configure_ = [](Config& config) {
    answer_soon(config);
    config.verbs_queue_depth = 16;
  };
  run([&](Fabric& fabric) {
    Exposed memory(fabric, "memory", kSize, 1);
    exchange(fabric, memory, 1);
    sync(fabric, "first");
    if (fabric.rank() == Rank(0)) {
      hang_at([](const ibv_send_wr& request) {
        constexpr std::uint64_t kCredits = 1;  // other requests of this number came before
        return request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM && request.wr_id == kCredits;
      });
    }
    sync(fabric, "second");
    for (std::uint64_t number = 2; fabric.rank() == Rank(0) && number < 100; ++number) {
      const Status status = complete(fabric, [&](Completion* c) {
        return memory.data(1).notify(notification(memory.cell_at(1, 0), number), c);
      });
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    }
    exchange(fabric, memory, 100);
    sync(fabric, "done");
  });
  EXPECT_EQ(device_.hung_pairs(), 1U);
}

TEST_F(VerbsDeviceTest, ForksAreMadeSafeBeforeMemoryIsRegistered) {
  make({.fork = IBV_FORK_DISABLED});
  run_exchange();
  EXPECT_EQ(device_.fork_calls(), 1);
  make({.fork = IBV_FORK_UNNEEDED});
  run_exchange();
  EXPECT_EQ(device_.fork_calls(), 0);
}

TEST_F(VerbsDeviceTest, OnlyMemoryThatAllowsItIsWrittenInAnyOrder) {
  for (const bool is_on : {true, false}) {
    configure_ = [&](Config& config) { config.verbs_relaxed_order = is_on; };
    make();
    std::uint64_t relaxed = 0;
    run([&](Fabric& fabric) {
      Exposed memory(fabric, "memory", kSize, 1);
      const auto data = fabric.allocate(kSize, DeviceOrder::kRelaxed).value();
      if (fabric.rank() == Rank(0)) relaxed = reinterpret_cast<std::uint64_t>(data->data());
      exchange(fabric, memory, 1);
      sync(fabric, "done");
    });
    std::size_t others = 0;
    bool has_data = false;
    for (const auto& each : device_.registrations()) {
      const bool is_relaxed =
          (static_cast<unsigned>(each.access) & IBV_ACCESS_RELAXED_ORDERING) != 0;
      if (each.address == relaxed && each.size == kSize) {
        has_data = true;
        EXPECT_EQ(is_relaxed, is_on);
      } else {
        others += is_relaxed;
      }
    }
    EXPECT_TRUE(has_data);
    EXPECT_EQ(others, is_on ? 1u : 0u) << "the data of rank 1 only";
  }
}

// A write in progress cannot be stopped, so the memory stays registered until no write can be.
TEST_F(VerbsDeviceTest, MemoryThatWasFreedIsDeregisteredInTime) {
  configure_ = [](Config& config) { config.verbs_timeout = 14; };  // tries for 0.5 s
  make();
  run([&](Fabric& fabric) {
    auto region = fabric.allocate(kSize).value();
    const auto address = reinterpret_cast<std::uint64_t>(region->data());
    EXPECT_TRUE(device_.is_registered(address));
    region.reset();
    EXPECT_TRUE(device_.is_registered(address));
    EXPECT_TRUE(progress_until(fabric, [&] { return !device_.is_registered(address); }));
    sync(fabric, "done");
  });
}

TEST_F(VerbsDeviceTest, PagingIsUsedIfItDoesWhatRegionsNeed) {
  constexpr std::uint32_t kBoth = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
  constexpr std::size_t kMuch = std::size_t{1} << 20;
  struct Case {
    std::uint32_t paging;
    bool has_atomics;
    bool works;
  };
  for (const Case& one : {Case{kBoth, true, false},
                          {kBoth, false, true},
                          {kBoth | IBV_ODP_SUPPORT_ATOMIC, true, true},
                          {0, false, false}}) {
    make({.has_atomics = one.has_atomics, .paging = one.paging, .most_locked = kMuch / 2});
    run([&](Fabric& fabric) {
      const auto region = fabric.allocate(kMuch);
      EXPECT_EQ(region.is_ok(), one.works) << one.paging << one.has_atomics;
    });
  }
}

// Ranks that have shared memory need no device that takes their memory.
TEST_F(VerbsDeviceTest, ALowLimitOfLockedMemoryEndsNoJobOfOneHost) {
  constexpr std::size_t kMuch = std::size_t{1} << 20;
  configure_ = [](Config& config) { config.transports = {"shm", "verbs"}; };
  make({.most_locked = kMuch / 2});
  run([&](Fabric& fabric) {
    Exposed memory(fabric, "memory", kMuch, 1);
    const Rank peer(1 - fabric.rank().value());
    EXPECT_EQ(fabric.transport_of(peer), "shm");
    const Status status = complete(fabric, [&](auto* done) {
      return memory.data(peer.value())
          .put(memory.local().slice(0, kMuch / 2).value(),
               memory.at(peer.value()).slice(kMuch / 2, kMuch / 2).value(), done);
    });
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    sync(fabric, "done");
  });
}

// A switch may hold a port back for hundreds of milliseconds (priority flow control).
TEST_F(VerbsDeviceTest, ConnectionsSurviveAPauseByDefault) {
  const transport::verbs::Delivery delivery(Config::from_environment().value());
  EXPECT_GE(delivery.endurance(), transport::verbs::kLongestPause);
  EXPECT_LT(delivery.endurance(), std::chrono::seconds(10));
  // 7 means forever to rdma_rxe.
  EXPECT_LT(delivery.retries, 7);
}

}  // namespace
}  // namespace dunlin::testing
