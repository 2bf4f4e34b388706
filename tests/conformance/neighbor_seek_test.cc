// Gathers from the rank that comes first, and gathers that are canceled, over every transport:
// which data are received, and which gather gets the data that arrive later.
#include <gtest/gtest.h>
#include <sched.h>

#include <cstring>
#include <vector>

#include "collectives/neighbor/neighbor_exchange.h"
#include "collectives/neighbor/wire.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::DataType;
using collective::Missed;
using collective::NeighborCall;
using collective::NeighborExchange;
using collective::NeighborRequest;
using transport::Fabric;

constexpr Duration kTimeout = std::chrono::seconds(60);

class NeighborSeekTest : public ::testing::TestWithParam<PeerKind> {
 protected:
  void run(const RankBody& body) {
    run_ranks({.kind = GetParam(), .size = 2, .killed = {}, .configure = {}}, body);
  }
};

std::unique_ptr<NeighborExchange> make_exchange(Fabric& fabric, std::string name) {
  auto exchange = NeighborExchange::create(fabric, {.name = std::move(name)});
  EXPECT_TRUE(exchange.is_ok()) << exchange.status().to_string();
  return std::move(exchange).value();
}

// Sends of bytes of one value, and receives of what the other rank sends.
class Mail {
 public:
  explicit Mail(Fabric& fabric, std::string name)
      : fabric_(fabric), exchange_(make_exchange(fabric, std::move(name))) {}

  NeighborExchange& exchange() { return *exchange_; }

  // `data` stays valid until the request has ended.
  NeighborRequest send(std::string_view name, const Bytes& data) {
    NeighborCall call{.name = name, .input = data.data(), .count = data.size()};
    call.type = DataType::kUint8;
    call.destinations = {{other()}};
    return begin(call, nothing_);
  }
  NeighborRequest receive(std::string_view name, std::vector<Bytes>& parts) {
    NeighborCall call{.name = name};
    call.type = DataType::kUint8;
    call.sources = {{other()}};
    return begin(call, parts);
  }
  void finish(NeighborRequest request) {
    const Status status = exchange_->wait(request, kTimeout * timeout_factor());
    ASSERT_TRUE(status.is_ok()) << status.to_string();
  }
  // Checks that `size` bytes of one value have arrived.
  void expect(NeighborRequest request, const std::vector<Bytes>& parts, int value,
              std::size_t size) {
    finish(request);
    ASSERT_EQ(parts.size(), 1u);
    ASSERT_EQ(parts[0].size(), size);
    for (const std::byte each : parts[0]) ASSERT_EQ(static_cast<int>(each), value);
  }
  Rank other() const { return Rank(1 - fabric_.rank().value()); }

 private:
  NeighborRequest begin(const NeighborCall& call, std::vector<Bytes>& parts) {
    const auto request = exchange_->start_gather(call, parts);
    EXPECT_TRUE(request.is_ok()) << request.status().to_string();
    return request.is_ok() ? *request : NeighborRequest();
  }

  Fabric& fabric_;
  std::unique_ptr<NeighborExchange> exchange_;
  std::vector<Bytes> nothing_;
};

// A rank that sends what its peer does not expect has to wait at 16 MiB, also while the peer seeks
// something that has arrived. It goes on while the peer seeks something that has not arrived.
TEST_P(NeighborSeekTest, TheBoundOfEarlyDataHoldsWhereNothingMoreIsSought) {
  run([](Fabric& fabric) {
    constexpr std::size_t kMessages = 1400;
    constexpr std::size_t kFit = (std::size_t{16} << 20) / collective::neighbor::kSmall;
    // One goes beyond the bound; others are in the ring.
    constexpr std::size_t kMost = kFit + 1 + collective::neighbor::kMessageDepth;
    static_assert(kMost < kMessages);
    Mail mail(fabric, "mail");
    Mail control(fabric, "control");
    NeighborExchange& exchange = mail.exchange();
    const std::vector<Rank> ranks{mail.other()};
    const Bytes flood(collective::neighbor::kSmall, std::byte{1});
    const Bytes last(8, std::byte{2});
    if (fabric.rank() == Rank(1)) {
      std::vector<NeighborRequest> requests;
      for (std::size_t i = 0; i < kMessages; ++i) requests.push_back(mail.send("flood", flood));
      std::size_t sent = 0;
      const auto send_on = [&] {
        exchange.progress();
        while (sent < kMessages && exchange.outcome(requests[sent]).is_ok()) ++sent;
      };
      ASSERT_TRUE(progress_until(fabric, [&] {
        send_on();
        return sent >= kFit;
      }));
      // Some more time for messages that must not be sent.
      for (int turn = 0; turn < 20000 && sent <= kMost; ++turn) {
        send_on();
        sched_yield();
      }
      EXPECT_LE(sent, kMost);
      control.finish(control.send("stop", last));
      const NeighborRequest request = mail.send("last", last);
      ASSERT_TRUE(progress_until(fabric, [&] {
        send_on();
        return sent == kMessages;
      }));
      mail.finish(request);
      sync(fabric, "done");
      return;
    }
    std::vector<Bytes> parts;
    ASSERT_TRUE(exchange.begin_seeking("flood", ranks).is_ok());
    const NeighborRequest stop = control.receive("stop", parts);
    ASSERT_TRUE(progress_until(fabric, [&] {
      exchange.progress();
      return control.exchange().test(stop).is_ok();
    }));
    EXPECT_TRUE(exchange.has_arrived("flood", Rank(1)));
    EXPECT_FALSE(exchange.has_arrived("last", Rank(1)));
    // It is behind all the others.
    ASSERT_TRUE(exchange.begin_seeking("last", ranks).is_ok());
    exchange.end_seeking("flood", ranks);
    ASSERT_TRUE(progress_until(fabric, [&] {
      exchange.progress();
      return exchange.has_arrived("last", Rank(1));
    }));
    exchange.end_seeking("last", ranks);
    mail.expect(mail.receive("last", parts), parts, 2, last.size());
    for (std::size_t i = 0; i < kMessages; ++i)
      mail.expect(mail.receive("flood", parts), parts, 1, flood.size());
    sync(fabric, "done");
  });
}

// If no data have arrived for a canceled gather, those behind it take its place, or don't.
TEST_P(NeighborSeekTest, WhichGatherGetsTheDataOfACanceledOne) {
  for (const std::size_t size : {std::size_t{8}, std::size_t{300000}}) {
    run([size](Fabric& fabric) {
      Mail mail(fabric, "mail");
      constexpr std::size_t kSent = 4;
      if (fabric.rank() == Rank(1)) {
        sync(fabric, "canceled");
        std::vector<Bytes> data;
        for (std::size_t i = 0; i < kSent; ++i) data.emplace_back(size, std::byte(i + 1));
        std::vector<NeighborRequest> requests;
        for (const Bytes& each : data) {
          for (const char* const name : {"next", "dropped"}) {
            requests.push_back(mail.send(name, each));
          }
        }
        for (const NeighborRequest request : requests) mail.finish(request);
        sync(fabric, "done");
        return;
      }
      // Cancels the second one first. The third gather of "dropped" is not canceled.
      std::vector<Bytes> unmet[6];
      NeighborRequest requests[6];
      for (std::size_t i = 0; i < 6; ++i)
        requests[i] = mail.receive(i < 3 ? "next" : "dropped", unmet[i]);
      mail.exchange().progress();
      for (const std::size_t i : {1u, 0u, 2u})
        mail.exchange().give_up(requests[i], Missed::kNextGather);
      for (const std::size_t i : {4u, 3u}) mail.exchange().give_up(requests[i], Missed::kDropped);
      EXPECT_EQ(mail.exchange().test(requests[0]).code(), Code::kNotFound);
      EXPECT_EQ(mail.exchange().outstanding(), 1u);
      sync(fabric, "canceled");
      mail.expect(requests[5], unmet[5], 3, size);
      std::vector<Bytes> parts;
      for (std::size_t i = 0; i < kSent; ++i) {
        mail.expect(mail.receive("next", parts), parts, static_cast<int>(i + 1), size);
      }
      mail.expect(mail.receive("dropped", parts), parts, 4, size);
      EXPECT_EQ(mail.exchange().outstanding(), 0u);
      sync(fabric, "done");
    });
  }
}

// A gather that was started before the one ahead of it is canceled moves up.
TEST_P(NeighborSeekTest, AGatherMovesUpWhenTheOneAheadIsCanceled) {
  run([](Fabric& fabric) {
    Mail mail(fabric, "mail");
    if (fabric.rank() == Rank(1)) {
      sync(fabric, "canceled");
      const Bytes first(40000, std::byte{1});
      const Bytes second(4, std::byte{2});
      const NeighborRequest requests[] = {mail.send("x", first), mail.send("x", second)};
      for (const NeighborRequest request : requests) mail.finish(request);
      sync(fabric, "done");
      return;
    }
    std::vector<Bytes> parts[3];
    NeighborRequest requests[3];
    for (std::size_t i = 0; i < 3; ++i) requests[i] = mail.receive("x", parts[i]);
    mail.exchange().give_up(requests[0], Missed::kNextGather);
    sync(fabric, "canceled");
    mail.expect(requests[1], parts[1], 1, 40000);
    mail.expect(requests[2], parts[2], 2, 4);
    sync(fabric, "done");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, NeighborSeekTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
