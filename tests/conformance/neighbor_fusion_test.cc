// Fusion in neighbor exchanges, over every transport: in which messages small calls travel and
// when, and what damaged messages do. To see what travels, one rank has the bare pair of rings in
// place of an exchange.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "collectives/neighbor/frame.h"
#include "collectives/neighbor/neighbor_exchange.h"
#include "runtime/fnv.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::NeighborCall;
using collective::NeighborExchange;
using collective::NeighborOptions;
using collective::NeighborRequest;
using collective::WeightedRank;
using collective::neighbor::check_frame;
using collective::neighbor::Frame;
using collective::neighbor::Header;
using collective::neighbor::Kind;
using collective::neighbor::Pair;
using collective::neighbor::Part;
using collective::neighbor::part_bytes;
using collective::neighbor::Ring;
using collective::neighbor::take_part;
using transport::Fabric;

constexpr Duration kTimeout = std::chrono::seconds(60);

class NeighborFusionTest : public OverPeers {};

std::unique_ptr<NeighborExchange> make_exchange(Fabric& fabric, NeighborOptions options = {}) {
  auto exchange = NeighborExchange::create(fabric, std::move(options));
  EXPECT_TRUE(exchange.is_ok()) << exchange.status().to_string();
  return std::move(exchange).value();
}

// Calls of one size, each with memory of its own. The input of call i on rank r is 1000 i + r.
class Calls {
 public:
  Calls(Fabric& fabric, std::size_t count, std::size_t elements)
      : self_(fabric.rank().value()),
        names_(count),
        inputs_(count),
        outputs_(count, std::vector<float>(elements)),
        calls_(count),
        requests_(count) {
    for (std::size_t i = 0; i < count; ++i) {
      names_[i] = fmt::format("tensor {}", i);
      inputs_[i].assign(elements, value(self_, i));
      calls_[i] = {.name = names_[i],
                   .input = inputs_[i].data(),
                   .output = outputs_[i].data(),
                   .count = elements,
                   .self_weight = 0};
    }
  }

  NeighborCall& operator[](std::size_t i) { return calls_[i]; }

  void start(NeighborExchange& exchange, std::size_t i) {
    const auto request = exchange.start(calls_[i]);
    ASSERT_TRUE(request.is_ok()) << request.status().to_string();
    requests_[i] = *request;
  }
  Status wait(NeighborExchange& exchange, std::size_t i) {
    return exchange.wait(requests_[i], kTimeout);
  }
  void finish(NeighborExchange& exchange, std::size_t i) {
    const Status status = wait(exchange, i);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    float sum = 0;
    for (const WeightedRank& from : calls_[i].sources) {
      sum += static_cast<float>(from.weight) * value(from.rank.value(), i);
    }
    for (const float each : outputs_[i]) ASSERT_EQ(each, sum) << "rank " << self_ << " call " << i;
  }

 private:
  static float value(int rank, std::size_t call) {
    return static_cast<float>(1000 * call + static_cast<std::size_t>(rank));
  }

  int self_;
  std::vector<std::string> names_;
  std::vector<std::vector<float>> inputs_;
  std::vector<std::vector<float>> outputs_;
  std::vector<NeighborCall> calls_;
  std::vector<NeighborRequest> requests_;
};

// Connects all ranks, so that later data can be sent at once.
void meet(Fabric& fabric, NeighborExchange& exchange) {
  float data = 1;
  NeighborCall call{.name = "meet", .input = &data, .output = &data, .count = 1, .self_weight = 0};
  for (int rank = 0; rank < fabric.size(); ++rank) {
    if (rank == fabric.rank().value()) continue;
    call.sources.push_back({Rank(rank), 1.0 / (fabric.size() - 1)});
    call.destinations.push_back({Rank(rank)});
  }
  const Status status = exchange.run(call);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
}

// The other end of rank 0's exchange: bare rings with the defaults of NeighborOptions.
Pair bare_pair(Fabric& fabric) {
  const NeighborOptions defaults;
  Pair pair;
  pair.peer = Rank(0);
  pair.messages = Ring::prepare(fabric, {defaults.name + "/messages", pair.peer,
                                         collective::neighbor::kMessageBytes,
                                         collective::neighbor::kMessageDepth})
                      .value();
  constexpr std::size_t kSlotBytes = std::size_t{128} << 10;
  pair.chunks =
      Ring::prepare(fabric, {defaults.name + "/chunks", pair.peer, kSlotBytes, defaults.depth})
          .value();
  EXPECT_TRUE(progress_until(fabric, [&] { return pair.connect().is_ok(); }));
  return pair;
}

std::vector<Part> next_parts(Fabric& fabric, Ring& ring, transport::Message& message) {
  std::vector<Part> parts;
  const bool has_come = progress_until(fabric, [&] {
    const auto polled = ring.poll();
    if (polled) message = *polled;
    return polled.has_value();
  });
  EXPECT_TRUE(has_come);
  if (!has_come || !check_frame(message.data).is_ok()) return parts;
  for (auto rest = message.data; !rest.empty();) parts.push_back(take_part(rest));
  return parts;
}

// A call that is alone leaves with start(). Those behind it leave together with the next
// progress().
TEST_P(NeighborFusionTest, NothingWaitsWhileNothingElseIsInProgress) {
  run(2, [](Fabric& fabric) {
    if (fabric.rank() == Rank(1)) {
      const Pair pair = bare_pair(fabric);
      transport::Message message;
      // The rank with the exchange has connected. From here on it calls no more than start().
      ASSERT_EQ(next_parts(fabric, *pair.messages, message).size(), 1u);
      pair.messages->release(message.sequence);
      sync(fabric, "connected");
      const std::vector<Part> first = next_parts(fabric, *pair.messages, message);
      ASSERT_EQ(first.size(), 1u);
      EXPECT_EQ(first[0].header.key, hash_of("tensor 1"));
      pair.messages->release(message.sequence);
      sync(fabric, "first");
      const std::vector<Part> others = next_parts(fabric, *pair.messages, message);
      ASSERT_EQ(others.size(), 3u);
      for (std::size_t i = 0; i < others.size(); ++i) {
        const Header& header = others[i].header;
        EXPECT_EQ(header.key, hash_of(fmt::format("tensor {}", i + 2)));
        EXPECT_EQ(header.kind, Kind::kEager);
        EXPECT_EQ(others[i].bytes.size(), 40u);
        float value = 0;
        std::memcpy(&value, others[i].bytes.data(), sizeof value);
        EXPECT_EQ(value, 1000.0f * static_cast<float>(i + 2));
      }
      pair.messages->release(message.sequence);
      sync(fabric, "done");
      return;
    }
    const auto exchange = make_exchange(fabric);
    Calls calls(fabric, 5, 10);
    for (std::size_t i = 0; i < 5; ++i) calls[i].destinations = {{Rank(1)}};
    calls[1].sources = {{Rank(1)}};  // its data never come, so it stays in progress
    calls.start(*exchange, 0);
    ASSERT_TRUE(calls.wait(*exchange, 0).is_ok());
    sync(fabric, "connected");
    calls.start(*exchange, 1);
    EXPECT_EQ(exchange->traffic().messages, 2u);
    sync(fabric, "first");
    for (std::size_t i = 2; i < 5; ++i) calls.start(*exchange, i);
    EXPECT_EQ(exchange->traffic().messages, 2u);
    exchange->progress();
    EXPECT_EQ(exchange->traffic().messages, 3u);
    EXPECT_EQ(exchange->traffic().parts, 5u);
    for (std::size_t i = 2; i < 5; ++i) EXPECT_TRUE(calls.wait(*exchange, i).is_ok());
    sync(fabric, "done");
  });
}

// 80 calls at once with different neighbors take as many messages as are needed to hold them.
TEST_P(NeighborFusionTest, CallsWithDifferentNeighborsShareMessages) {
  run(4, [](Fabric& fabric) {
    const auto exchange = make_exchange(fabric);
    meet(fabric, *exchange);
    const int self = fabric.rank().value();
    constexpr std::size_t kCalls = 80;
    Calls calls(fabric, kCalls, 250);
    std::vector<std::size_t> parts(4);
    std::size_t all = 0;
    for (std::size_t i = 0; i < kCalls; ++i) {
      for (int to = 0; to < 4; ++to) {
        for (int from = 0; from < 4; ++from) {
          if (from == to || (i + static_cast<std::size_t>(3 * from + to)) % 3 == 0) continue;
          if (from == self) {
            calls[i].destinations.push_back({Rank(to)});
            ++parts[static_cast<std::size_t>(to)];
            ++all;
          }
          if (to == self) calls[i].sources.push_back({Rank(from), 0.5});
        }
      }
    }
    for (int round = 0; round < 3; ++round) {
      const auto before = exchange->traffic();
      for (std::size_t i = 0; i < kCalls; ++i) calls.start(*exchange, i);
      const auto begun = exchange->traffic();
      for (std::size_t i = 0; i < kCalls; ++i) calls.finish(*exchange, i);
      const auto now = exchange->traffic();
      EXPECT_EQ(now.parts - before.parts, all);
      std::size_t fewest = 0;
      const std::size_t fit = (std::size_t{16} << 10) / part_bytes(1000);
      for (const std::size_t each : parts) fewest += (each + fit - 1) / fit;
      EXPECT_GE(now.messages - before.messages, fewest);
      // The first call travels alone.
      EXPECT_LE(now.messages - before.messages, fewest + 3);
      // Full messages don't wait for progress().
      EXPECT_GT(begun.parts - before.parts, all / 2);
    }
    sync(fabric, "done");
  });
}

// Ranks with different thresholds, and without fusion, exchange with one another.
TEST_P(NeighborFusionTest, ThresholdsMayDiffer) {
  run(4, [](Fabric& fabric) {
    const int self = fabric.rank().value();
    const std::size_t thresholds[] = {0, 200, 3000, 16384};
    NeighborOptions options;
    options.fusion_threshold = thresholds[self];
    const auto exchange = make_exchange(fabric, options);
    constexpr std::size_t kCalls = 60;
    for (const std::size_t elements : {0u, 1u, 7u, 300u, 4096u, 5000u}) {
      Calls calls(fabric, kCalls, elements);
      const auto before = exchange->traffic();
      for (std::size_t i = 0; i < kCalls; ++i) {
        for (int peer = 0; peer < 4; ++peer) {
          if (peer == self) continue;
          calls[i].sources.push_back({Rank(peer), 0.25});
          calls[i].destinations.push_back({Rank(peer)});
        }
        calls.start(*exchange, i);
      }
      for (std::size_t i = 0; i < kCalls; ++i) calls.finish(*exchange, i);
      const auto now = exchange->traffic();
      EXPECT_EQ(now.parts - before.parts, 3 * kCalls);
      const bool is_fused = elements * 4 <= 28 ? self > 0 : elements == 300 && self > 1;
      const std::uint64_t messages = now.messages - before.messages;
      EXPECT_LE(messages, is_fused ? 3 * kCalls - 1 : 3 * kCalls);
      EXPECT_TRUE(self > 0 || messages == 3 * kCalls) << messages;
    }
    sync(fabric, "done");
  });
}

// Calls that wait for rank 2 hold all slots of rank 1's messages, several calls in each slot. A
// call of ranks 0 and 1 alone goes past them.
TEST_P(NeighborFusionTest, SlotsThatSeveralCallsHoldAreClearedForOthers) {
  run(3, [](Fabric& fabric) {
    const auto exchange = make_exchange(fabric);
    meet(fabric, *exchange);
    const int self = fabric.rank().value();
    constexpr std::size_t kCalls = 700;  // 25 fit into a message, and 16 messages into the ring
    Calls calls(fabric, kCalls + 1, 150);
    calls[kCalls].sources = {{Rank(1 - self % 2)}};
    calls[kCalls].destinations = {{Rank(1 - self % 2)}};
    for (std::size_t i = 0; i < kCalls; ++i) {
      if (self == 0) calls[i].sources = {{Rank(1), 0.5}, {Rank(2), 0.5}};
      if (self != 0) calls[i].destinations = {{Rank(0)}};
    }
    if (self != 2) {
      for (std::size_t i = 0; i <= kCalls; ++i) calls.start(*exchange, i);
      calls.finish(*exchange, kCalls);
    }
    sync(fabric, "past them");
    if (self == 2) {
      for (std::size_t i = 0; i < kCalls; ++i) calls.start(*exchange, i);
    }
    for (std::size_t i = 0; i < kCalls; ++i) {
      if (self == 0) calls.finish(*exchange, i);
      const Status status = self == 0 ? Status::ok() : calls.wait(*exchange, i);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    }
    sync(fabric, "done");
  });
}

// Rank 1 sends rank 0 a message for its call, which `damage` has changed.
void expect_refused(Fabric& fabric, const std::function<void(std::vector<std::byte>&)>& damage,
                    std::string_view told) {
  if (fabric.rank() == Rank(1)) {
    Pair pair = bare_pair(fabric);
    const std::vector<float> data(10, 1.0f);
    Part part;
    part.header.key = hash_of("tensor 0");
    part.header.sequence = 1;
    part.header.bytes = data.size() * sizeof(float);
    part.header.kind = Kind::kEager;
    part.header.type = static_cast<std::uint8_t>(collective::DataType::kFloat32);
    part.header.is_reduction = 1;
    part.bytes = std::as_bytes(std::span(data));
    Frame frame;
    frame.add(part);
    part.header.key = hash_of("another");
    frame.add(part);
    std::vector<std::byte> message;
    for (const auto piece : frame.pieces()) {
      message.insert(message.end(), piece.begin(), piece.end());
    }
    damage(message);
    const Status sent = post(fabric, [&] { return pair.messages->send(0, message); });
    EXPECT_TRUE(sent.is_ok()) << sent.to_string();
    sync(fabric, "done");
    // The message has arrived, but its completion may not have fired.
    fabric.keep_until_done(std::move(pair.messages));
    fabric.keep_until_done(std::move(pair.chunks));
    return;
  }
  const auto exchange = make_exchange(fabric);
  Calls calls(fabric, 1, 10);
  calls[0].sources = {{Rank(1)}};
  calls.start(*exchange, 0);
  const Status status = calls.wait(*exchange, 0);
  EXPECT_EQ(status.code(), Code::kCorrupted) << status.to_string();
  EXPECT_EQ(status.peer(), Rank(1)) << status.to_string();
  EXPECT_NE(status.message().find(told), std::string::npos) << status.to_string();
  EXPECT_EQ(exchange->outstanding(), 0u);
  sync(fabric, "done");
}

TEST_P(NeighborFusionTest, ADamagedMessageEndsTheCallsWithItsSender) {
  run(2, [](Fabric& fabric) {
    // The first part, which is valid, has no effect either.
    expect_refused(
        fabric, [](auto& message) { message.pop_back(); },
        "a part of 40 bytes where 39 are left at byte 80");
  });
  run(2, [](Fabric& fabric) {
    expect_refused(
        fabric, [](auto& message) { message[80 + offsetof(Header, kind)] = std::byte{77}; },
        "an unknown kind 77 at byte 80");
  });
}

TEST_P(NeighborFusionTest, WhatComesTwiceInAMessageIsRefused) {
  run(2, [](Fabric& fabric) {
    // The second part is for the same call as the first one.
    expect_refused(
        fabric, [](auto& message) { std::memcpy(message.data() + 80, message.data(), 80); },
        "the neighbor has sent it twice");
  });
}

TEST(NeighborFusion, TheConfigurationSetsTheThreshold) {
  RunOptions options;
  options.configure = [](Config& config) { config.fusion_threshold = 0; };
  run_ranks(options, [](Fabric& fabric) {
    NeighborOptions beyond;
    beyond.fusion_threshold = 16385;
    EXPECT_EQ(NeighborExchange::create(fabric, beyond).status().code(), Code::kInvalidArgument);
    const auto exchange = make_exchange(fabric);
    meet(fabric, *exchange);
    Calls calls(fabric, 20, 1);
    const Rank other(1 - fabric.rank().value());
    for (std::size_t i = 0; i < 20; ++i) {
      calls[i].sources = {{other}};
      calls[i].destinations = {{other}};
      calls.start(*exchange, i);
    }
    for (std::size_t i = 0; i < 20; ++i) calls.finish(*exchange, i);
    EXPECT_EQ(exchange->traffic().messages, 21u);
    EXPECT_EQ(exchange->traffic().parts, 21u);
    sync(fabric, "done");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, NeighborFusionTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
