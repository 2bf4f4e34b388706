// The tcp transport behind a relay that changes, cuts, records and blocks what travels: whatever
// happens to a connection, every operation has its effect once, or fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/ranks.h"
#include "tests/transports/tcp_relay.h"
#include "transports/tcp/constants.h"
#include "transports/tcp/handshake.h"

namespace dunlin::testing {
namespace {

using ::testing::HasSubstr;
using transport::Completion;
using transport::Fabric;
using transport::Visibility;

using Verdict = Relay::Verdict;

Verdict forward(Relay::Chunk&) {
  return Verdict::kGoOn;
}

// Real time that a test can push forward. Any thread.
class PushedClock final : public Clock {
 public:
  TimePoint now() const override {
    return std::chrono::steady_clock::now() + std::chrono::seconds(pushed_s_.load());
  }
  void push(int seconds) { pushed_s_ += seconds; }

 private:
  std::atomic<int> pushed_s_{0};
};

Config configuration(bool is_encrypted) {
  Config config = Config::parse(Environment()).value();
  config.transports = {"tcp"};
  config.tcp_interface = "lo";
  config.tcp_encryption = is_encrypted;
  return config;
}

// Runs the body as two ranks whose connections go through the relay.
void run_relayed(Relay& relay, const Config& config, const Clock& clock, const RankBody& body) {
  InProcessJob job(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto direct = job.bootstrap(Rank(rank));
      RelayedBootstrap bootstrap(*direct, relay);
      auto fabric = Fabric::create(bootstrap, config, clock);
      ASSERT_TRUE(fabric.is_ok()) << fabric.status().to_string();
      body(**fabric);
      sync(**fabric, "end of the test");
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

void run_relayed(Relay& relay, bool is_encrypted, const RankBody& body) {
  const SteadyClock clock;
  run_relayed(relay, configuration(is_encrypted), clock, body);
}

constexpr std::size_t kSlot = 90'000;
constexpr std::uint64_t kSlots = 4;
constexpr std::uint64_t kWindow = 2;  // messages that may be on their way

std::size_t size_of(std::uint64_t message) {
  constexpr std::array<std::size_t, 7> kSizes = {8, 3000, 5000, 16'384, 16'385, 70'000, kSlot};
  return kSizes[message % kSizes.size()];
}

// What rank 0 gets from rank 1, and where to.
std::span<std::byte> upper_half(Exposed& memory) {
  return memory.local().memory()->bytes().subspan(kSlots * kSlot, kSlots * kSlot);
}

// Rank 0 puts messages into the slots of rank 1, which checks each and overwrites it. A put that
// lands once more would destroy what rank 1 has written. Gets and flushes go along.
void exchange(Fabric& fabric, std::uint64_t messages) {
  Exposed memory(fabric, "exchange", 2 * kSlots * kSlot, 2);
  const auto slot_of = [&](std::uint64_t message) {
    return memory.local().memory()->bytes().subspan(message % kSlots * kSlot, size_of(message));
  };
  if (fabric.rank() == Rank(1)) {
    fill(upper_half(memory), 77);
    sync(fabric, "filled");
    for (std::uint64_t message = 0; message < messages; ++message) {
      ASSERT_TRUE(await_cell(fabric, memory.cell(0), message + 1)) << message;
      ASSERT_LE(fabric.board().sequence(memory.cell(0)), message + kWindow);
      ASSERT_TRUE(is_filled(slot_of(message), message)) << message;
      fill(slot_of(message), message + 1'000'000);
      // The slots that are not in use hold what was written into them last.
      for (std::uint64_t age = kWindow; age + kWindow <= kSlots && age <= message; ++age) {
        ASSERT_TRUE(is_filled(slot_of(message - age + 1), message - age + 1 + 1'000'000))
            << "message " << message - age + 1 << " landed again after message " << message;
      }
      ASSERT_TRUE(post(fabric, [&] {
                    return memory.link(0).control().notify(
                        notification(memory.cell_at(0, 1), message + 1), nullptr);
                  }).is_ok());
    }
    return;
  }
  sync(fabric, "filled");
  for (std::uint64_t message = 0; message < messages; ++message) {
    if (message >= kWindow) {
      ASSERT_TRUE(await_cell(fabric, memory.cell(1), message - kWindow + 1)) << message;
    }
    const std::size_t size = size_of(message);
    const auto from = memory.local().slice(message % kSlots * kSlot, size).value();
    const auto to = memory.at(1).slice(message % kSlots * kSlot, size).value();
    fill(slot_of(message), message);
    const Status put = complete(fabric, [&](Completion* done) {
      return memory.data(1).put_notify(from, to, notification(memory.cell_at(1, 0), message + 1),
                                       done);
    });
    ASSERT_TRUE(put.is_ok()) << put.to_string();
    if (message % 3 == 0) {
      const Status got = complete(fabric, [&](Completion* done) {
        return memory.data(1).reads()->get(
            memory.at(1).slice(kSlots * kSlot, kSlots * kSlot).value(),
            memory.local().slice(kSlots * kSlot, kSlots * kSlot).value(), done);
      });
      ASSERT_TRUE(got.is_ok()) << got.to_string();
      ASSERT_TRUE(is_filled(upper_half(memory), 77));
      std::memset(memory.local().data() + kSlots * kSlot, 0, kSlots * kSlot);
    }
    if (message % 5 == 0) {
      const Status flushed = complete(fabric, [&](Completion* done) {
        return memory.data(1).flush(Visibility::kRemote, done);
      });
      ASSERT_TRUE(flushed.is_ok()) << flushed.to_string();
    }
  }
  ASSERT_TRUE(await_cell(fabric, memory.cell(1), messages));
}

class TcpWireTest : public ::testing::TestWithParam<bool> {};

TEST_P(TcpWireTest, AnUndisturbedRelayChangesNothing) {
  Relay relay(forward);
  run_relayed(relay, GetParam(), [](Fabric& fabric) { exchange(fabric, 30); });
  // At most one for each of the two lanes of each rank to the other one. A rank knows its own
  // address, and asks nobody for it.
  EXPECT_GE(relay.connections(), 2);
  EXPECT_LE(relay.connections(), 4);
}

TEST_P(TcpWireTest, TwoRanksThatSendToEachOtherShareTheirConnections) {
  Relay relay(forward);
  run_relayed(relay, GetParam(), [&](Fabric& fabric) {
    // Rank 0 has its connections before rank 1 has a lane.
    if (fabric.rank() == Rank(0)) {
      const auto link = fabric.link(Rank(1)).value();
      for (transport::Lane* const lane : {&link->data(), &link->control()}) {
        ASSERT_TRUE(post(fabric, [&] {
                      return lane->notify(notification(transport::NotifyId{9}, 1), nullptr);
                    }).is_ok());
        ASSERT_TRUE(complete(fabric, [&](Completion* done) {
                      return lane->flush(Visibility::kRemote, done);
                    }).is_ok());
      }
    }
    sync(fabric, "connected");
    exchange(fabric, 30);
    EXPECT_EQ(relay.open_connections(), 2);
    sync(fabric, "shared");
    Exposed memory(fabric, "afterwards", kSlot, 1);
    const int other = 1 - fabric.rank().value();
    ASSERT_TRUE(complete(fabric, [&](Completion* done) {
                  return memory.data(other).put_notify(
                      memory.local().whole(), memory.at(other).whole(),
                      notification(memory.cell_at(other, 0), 1), done);
                }).is_ok());
    ASSERT_TRUE(await_cell(fabric, memory.cell(0), 1));
    EXPECT_EQ(relay.open_connections(), 2);
    EXPECT_LE(relay.connections(), 4);
    sync(fabric, "done");
  });
}

// The n-th connection is cut in one direction after a number of bytes that is different each time:
// within the handshake, within headers, within payloads, within answers.
TEST_P(TcpWireTest, ConnectionsThatBreakAnywhereLoseAndRepeatNothing) {
  const auto limit_of = [](int connection) -> std::uint64_t {
    if (connection % 3 == 0) return 1 + static_cast<std::uint64_t>(connection) * 11 % 400;
    return 300 + static_cast<std::uint64_t>(connection) * 7919 % 260'000;
  };
  std::atomic<int> cuts{0};
  Relay relay([&](Relay::Chunk& chunk) {
    if (chunk.is_to_server != (chunk.connection % 2 == 0)) return Verdict::kGoOn;
    const std::uint64_t limit = limit_of(chunk.connection);
    if (chunk.offset + chunk.bytes.size() < limit) return Verdict::kGoOn;
    chunk.bytes.resize(limit - chunk.offset);
    ++cuts;
    return Verdict::kCut;
  });
  run_relayed(relay, GetParam(), [](Fabric& fabric) { exchange(fabric, 150); });
  EXPECT_GT(cuts, 40);
}

INSTANTIATE_TEST_SUITE_P(Tcp, TcpWireTest, ::testing::Bool(), [](const auto& is_encrypted) {
  return is_encrypted.param ? "encrypted" : "plain";
});

// What a relay can do to bytes on their way, once per connection.
struct Attack {
  const char* name;
  std::function<void(std::vector<std::byte>& bytes, std::vector<std::byte>& earlier)> change;
};

class TcpAttackTest : public ::testing::TestWithParam<Attack> {};

TEST_P(TcpAttackTest, EndsTheConnectionAndHarmsNoData) {
  constexpr std::uint64_t kGreetings = sizeof(transport::tcp::ClientHello) +
                                       sizeof(transport::tcp::ServerHello) +
                                       sizeof(transport::tcp::ClientProof);
  // Between two attacks, so many bytes pass that some messages are carried out, because a lane that
  // makes no progress at all gives up.
  constexpr std::uint64_t kPeace = 700'001;
  std::vector<std::byte> earlier;
  std::uint64_t passed = 0;
  int attacks = 0;
  Relay relay([&](Relay::Chunk& chunk) {
    const std::vector<std::byte> original = chunk.bytes;
    Verdict verdict = Verdict::kGoOn;
    passed += original.size();
    if (passed >= kPeace && chunk.offset >= kGreetings && original.size() > 40) {
      GetParam().change(chunk.bytes, earlier);
      verdict = Verdict::kWatch;
      passed = 0;
      ++attacks;
    }
    earlier = original;
    return verdict;
  });
  run_relayed(relay, true, [](Fabric& fabric) { exchange(fabric, 200); });
  EXPECT_GT(attacks, 20);
  EXPECT_GT(relay.connections(), 4 + attacks / 2) << "most attacks hit while the lane is in use";
}

INSTANTIATE_TEST_SUITE_P(
    Tcp, TcpAttackTest,
    ::testing::Values(
        Attack{"flipped", [](auto& bytes, auto&) { bytes[20] ^= std::byte{1}; }},
        Attack{"flipped_header", [](auto& bytes, auto&) { bytes[0] ^= std::byte{1}; }},
        Attack{"truncated", [](auto& bytes, auto&) { bytes.resize(bytes.size() - 1); }},
        Attack{"left_out", [](auto& bytes, auto&) { bytes.clear(); }},
        Attack{"inserted",
               [](auto& bytes, auto&) { bytes.insert(bytes.begin() + 30, 8, std::byte{0}); }},
        Attack{"repeated",
               [](auto& bytes, auto&) {
                 const std::vector<std::byte> copy = bytes;
                 bytes.insert(bytes.end(), copy.begin(), copy.end());
               }},
        Attack{"replayed", [](auto& bytes, auto& earlier) { bytes = earlier; }},
        Attack{"swapped",
               [](auto& bytes, auto&) {
                 std::rotate(bytes.begin(), bytes.begin() + 32, bytes.end());
               }}),
    [](const auto& attack) { return attack.param.name; });

// A payload that nobody could miss, in every way in which bytes travel.
void send_recognizable(Fabric& fabric, std::string_view secret) {
  constexpr std::size_t kSize = 100'000;
  Exposed memory(fabric, "secret", kSize, 1);
  if (fabric.rank() == Rank(0)) {
    for (std::size_t at = 0; at + secret.size() <= kSize; at += secret.size())
      std::memcpy(memory.local().data() + at, secret.data(), secret.size());
    for (const std::size_t size : {std::size_t{200}, std::size_t{10'000}, kSize}) {
      auto carried = notification(memory.cell_at(1, 0), size);
      carried.inline_data = as_bytes(secret.substr(0, transport::kInlineBytes));
      ASSERT_TRUE(complete(fabric, [&](Completion* done) {
                    return memory.data(1).put_notify(memory.local().slice(0, size).value(),
                                                     memory.at(1).slice(0, size).value(), carried,
                                                     done);
                  }).is_ok());
    }
    ASSERT_TRUE(complete(fabric, [&](Completion* done) {
                  return memory.data(1).reads()->get(memory.at(1).whole(), memory.local().whole(),
                                                     done);
                }).is_ok());
  } else {
    ASSERT_TRUE(await_cell(fabric, memory.cell(0), kSize));
  }
  sync(fabric, "sent");
}

int occurrences(bool is_encrypted) {
  constexpr std::string_view kSecret = "The quick brown fox jumps over the lazy dog. ";
  // The bytes by connection and direction, as strings that are searched in the end.
  std::map<std::pair<int, bool>, std::string> recorded;
  {
    Relay relay([&](Relay::Chunk& chunk) {
      recorded[{chunk.connection, chunk.is_to_server}].append(
          reinterpret_cast<const char*>(chunk.bytes.data()), chunk.bytes.size());
      return Verdict::kGoOn;
    });
    run_relayed(relay, is_encrypted, [&](Fabric& fabric) { send_recognizable(fabric, kSecret); });
  }
  int found = 0;
  for (const auto& [direction, bytes] : recorded) {
    if (bytes.find(kSecret.substr(0, 16)) != std::string::npos) ++found;
  }
  return found;
}

TEST(TcpSecrecy, NothingRecognizableTravels) {
  EXPECT_EQ(occurrences(true), 0);
  EXPECT_EQ(occurrences(false), 2) << "there and back: so the search would find it";
}

// No more connections get through. The clock decides how long the lanes try again.
TEST(TcpRenewal, GivesUpWhenNothingAnswersAnyMore) {
  Relay relay(forward);
  PushedClock clock;
  Config config = configuration(true);
  config.reconnect_timeout = Duration::zero();  // so that kRenewTimeout decides
  run_relayed(relay, config, clock, [&](Fabric& fabric) {
    Exposed memory(fabric, "cut", 4096, 1);
    if (fabric.rank() == Rank(0)) {
      ASSERT_TRUE(complete(fabric, [&](Completion* done) {
                    return memory.data(1).notify(notification(memory.cell_at(1, 0), 1), done);
                  }).is_ok());
    } else {
      ASSERT_TRUE(await_cell(fabric, memory.cell(0), 1));
    }
    sync(fabric, "connected");
    if (fabric.rank() == Rank(0)) {
      relay.shut();
      EXPECT_TRUE(fabric.peers().is_present(Rank(1)));
      clock.push(1 + static_cast<int>(transport::tcp::kRenewTimeout.count()));
    }
    Status status;
    const int other = 1 - fabric.rank().value();
    ASSERT_TRUE(progress_until(fabric, [&] {
      status = memory.data(other).notify(notification(memory.cell_at(other, 0), 2), nullptr);
      return status.is_error();
    }));
    EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
    EXPECT_EQ(status.peer(), Rank(other));
  });
}

TEST(TcpRenewal, AFirstConnectionThatFailsNamesPeerAndAddress) {
  Relay relay(forward);
  relay.shut();
  PushedClock clock;
  const Config config = configuration(true);
  run_relayed(relay, config, clock, [&](Fabric& fabric) {
    auto link = fabric.link(Rank(1 - fabric.rank().value()));
    ASSERT_TRUE(link.is_ok()) << link.status().to_string();
    auto& board = fabric.board();
    const auto cell = board.allocate(1).value();
    const auto post = [&] { return (*link)->data().notify(notification(cell, 1), nullptr); };
    EXPECT_TRUE(post().is_busy()) << "nothing may wait in a lane that is not connected";
    sync(fabric, "tried");
    if (fabric.rank() == Rank(0)) clock.push(1 + static_cast<int>(to_seconds(config.deadline)));
    Status status;
    while (!(status = post()).is_error()) fabric.progress();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_THAT(status.to_string(), HasSubstr("cannot connect to rank"));
    EXPECT_THAT(status.to_string(), HasSubstr("127.0.0.1:"));
    EXPECT_TRUE(fabric.peers().is_present((*link)->peer())) << "nobody knows that it is dead";
  });
}

}  // namespace
}  // namespace dunlin::testing
