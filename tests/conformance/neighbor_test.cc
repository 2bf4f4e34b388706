// Averages and gathers with neighbors over every transport, against a reference that every rank
// computes from the values that the others are known to have.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <random>

#include "collectives/graph/generators.h"
#include "collectives/neighbor/check_neighbors.h"
#include "collectives/neighbor/neighbor_exchange.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::Communicator;
using collective::DataType;
using collective::Graph;
using collective::make_graph;
using collective::NeighborCall;
using collective::NeighborExchange;
using collective::neighborhood_of;
using collective::NeighborRequest;
using collective::WeightedRank;
using collective::Weighting;
using transport::Fabric;

class NeighborTest : public OverPeers {};

std::unique_ptr<NeighborExchange> make_exchange(Fabric& fabric, std::string name = "world") {
  auto exchange = NeighborExchange::create(fabric, {.name = std::move(name), .slot_bytes = 8192});
  EXPECT_TRUE(exchange.is_ok()) << exchange.status().to_string();
  return std::move(exchange).value();
}

double value(int rank, std::uint64_t step, std::size_t element) {
  return std::sin(static_cast<double>(rank * 131 + 17) * static_cast<double>(step + 1) +
                  static_cast<double>(element % 1009));
}

template <typename T>
std::vector<T> values(int rank, std::uint64_t step, std::size_t count) {
  std::vector<T> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = static_cast<T>(value(rank, step, i));
  return made;
}

template <typename T>
struct TypeOf;
template <>
struct TypeOf<float> {
  static constexpr DataType kType = DataType::kFloat32;
  static constexpr double kBound = 1e-6;
};
template <>
struct TypeOf<double> {
  static constexpr DataType kType = DataType::kFloat64;
  static constexpr double kBound = 1e-14;
};
template <>
struct TypeOf<_Float16> {
  static constexpr DataType kType = DataType::kFloat16;
  static constexpr double kBound = 2e-3;
};

// `push(from, to)` is the weight with which the source multiplies.
template <typename T>
void expect_average(const std::vector<T>& output, int self, std::uint64_t step,
                    const NeighborCall& call, const std::function<double(int, int)>& push) {
  for (std::size_t i = 0; i < output.size(); ++i) {
    double sum = call.self_weight * static_cast<double>(static_cast<T>(value(self, step, i)));
    for (const WeightedRank& from : call.sources) {
      sum += from.weight * push(from.rank.value(), self) *
             static_cast<double>(static_cast<T>(value(from.rank.value(), step, i)));
    }
    ASSERT_NEAR(static_cast<double>(output[i]), sum, TypeOf<T>::kBound)
        << "rank " << self << " step " << step << " element " << i << " of " << output.size();
  }
}

template <typename T>
void average_over(Fabric& fabric, NeighborExchange& exchange, const std::string& spec) {
  const Graph graph = make_graph(spec, fabric.size()).value();
  const int self = fabric.rank().value();
  std::vector<Rank> members;
  for (int rank = 0; rank < fabric.size(); ++rank) members.emplace_back(rank);
  NeighborCall call;
  set_neighbors(call, neighborhood_of(graph, Weighting::kUniform, members, fabric.rank()).value());
  call.type = TypeOf<T>::kType;
  std::uint64_t step = 0;
  // None, one, within a message, beyond one, a few slots, many rounds of all slots.
  for (const std::size_t count : {0u, 1u, 77u, 3000u, 5000u, 70001u}) {
    for (const bool is_in_place : {false, true}) {
      std::vector<T> input = values<T>(self, ++step, count);
      std::vector<T> output(is_in_place ? 0 : count);
      call.input = input.data();
      call.output = is_in_place ? input.data() : output.data();
      call.count = count;
      const Status status = exchange.run(call);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
      expect_average(is_in_place ? input : output, self, step, call, [](int, int) { return 1.0; });
    }
  }
}

TEST_P(NeighborTest, AveragesOverGraphs) {
  for (const int size : {1, 2, 4, 5}) {
    run(size, [](Fabric& fabric) {
      const auto exchange = make_exchange(fabric);
      for (const std::string spec : {"ring", "exponential", "star", "complete", "chain"}) {
        average_over<float>(fabric, *exchange, spec);
        average_over<double>(fabric, *exchange, spec);
        average_over<_Float16>(fabric, *exchange, spec);
      }
    });
  }
}

// The neighbors differ in every call, some ranks have none, and both sides give weights.
TEST_P(NeighborTest, NeighborsChangeFromCallToCall) {
  run(4, [](Fabric& fabric) {
    const auto exchange = make_exchange(fabric);
    const int self = fabric.rank().value();
    std::mt19937 random(7);  // the same on all ranks
    for (std::uint64_t step = 0; step < 60; ++step) {
      const std::size_t count = step % 7 == 0 ? 9000 : 100 * (step % 5);
      NeighborCall call;
      call.type = DataType::kFloat64;
      call.self_weight = 0.5 + 0.25 * static_cast<double>(self);
      const auto push = [&](int from, int to) { return 0.125 * (1 + from + 2 * to); };
      for (int from = 0; from < fabric.size(); ++from) {
        for (int to = 0; to < fabric.size(); ++to) {
          if (from == to || random() % 3 != 0) continue;
          if (to == self) call.sources.push_back({Rank(from), 0.5 * (from + 1)});
          if (from == self) call.destinations.push_back({Rank(to), push(self, to)});
        }
      }
      const std::vector<double> input = values<double>(self, step, count);
      std::vector<double> output(count);
      call.input = input.data();
      call.output = output.data();
      call.count = count;
      const Status status = exchange->run(call);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
      for (std::size_t i = 0; i < count; ++i) {
        double sum = call.self_weight * value(self, step, i);
        for (const WeightedRank& from : call.sources) {
          sum += from.weight * push(from.rank.value(), self) * value(from.rank.value(), step, i);
        }
        ASSERT_NEAR(output[i], sum, 1e-13);
      }
    }
  });
}

// 50 calls, small and large, with different names and with equal ones, started in another order on
// each rank.
TEST_P(NeighborTest, ManyAreInProgressInAnyOrder) {
  run(4, [](Fabric& fabric) {
    const auto exchange = make_exchange(fabric);
    const int self = fabric.rank().value();
    const int size = fabric.size();
    constexpr std::size_t kCalls = 50;
    for (int round = 0; round < 3; ++round) {
      std::vector<std::vector<float>> inputs(kCalls);
      std::vector<std::vector<float>> outputs(kCalls);
      std::vector<NeighborCall> calls(kCalls);
      std::vector<std::string> names(kCalls);
      std::vector<NeighborRequest> requests(kCalls);
      std::vector<std::size_t> order(kCalls);
      for (std::size_t i = 0; i < kCalls; ++i) {
        order[i] = i;
        // Shapes of a name differ from round to round.
        const std::size_t count = (i * 977 + static_cast<std::size_t>(round) * 4001) % 12'000;
        names[i] = fmt::format("tensor {}", i);
        inputs[i] = values<float>(self, i, count);
        outputs[i].resize(count);
        calls[i] = {.name = names[i],
                    .input = inputs[i].data(),
                    .output = outputs[i].data(),
                    .count = count,
                    .self_weight = 0.5};
        calls[i].sources = {{Rank((self + 1) % size), 0.25}, {Rank((self + 3) % size), 0.25}};
        calls[i].destinations = {{Rank((self + 3) % size)}, {Rank((self + 1) % size)}};
      }
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(self + round)));
      for (const std::size_t i : order) {
        auto request = exchange->start(calls[i]);
        ASSERT_TRUE(request.is_ok()) << request.status().to_string();
        requests[i] = *request;
      }
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(self * 3)));
      for (const std::size_t i : order) {
        const Status status = exchange->wait(requests[i], std::chrono::seconds(30));
        ASSERT_TRUE(status.is_ok()) << status.to_string();
        expect_average(outputs[i], self, i, calls[i], [](int, int) { return 1.0; });
        EXPECT_EQ(exchange->test(requests[i]).code(), Code::kNotFound);
      }
      EXPECT_EQ(exchange->outstanding(), 0u);
    }
  });
}

TEST_P(NeighborTest, GathersWhatEachHas) {
  run(4, [](Fabric& fabric) {
    const auto exchange = make_exchange(fabric);
    const int self = fabric.rank().value();
    const auto count = [](int rank, std::size_t step) {
      return rank == 1 ? 0 : static_cast<std::size_t>(rank + 1) * step * step * step;
    };
    for (std::size_t step = 1; step < 30; step += 4) {
      const std::vector<double> input = values<double>(self, step, count(self, step));
      NeighborCall call;
      call.type = DataType::kFloat64;
      call.input = input.data();
      call.count = input.size();
      for (int peer = fabric.size() - 1; peer >= 0; --peer) {
        if (peer == self) continue;
        call.sources.push_back({Rank(peer)});
        call.destinations.push_back({Rank(peer)});
      }
      std::vector<Bytes> gathered;
      const Status status = exchange->gather(call, gathered);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
      ASSERT_EQ(gathered.size(), call.sources.size());
      for (std::size_t i = 0; i < gathered.size(); ++i) {
        const int from = call.sources[i].rank.value();
        const auto expected = values<double>(from, step, count(from, step));
        ASSERT_EQ(gathered[i].size(), expected.size() * sizeof(double));
        if (expected.empty()) continue;
        EXPECT_EQ(std::memcmp(gathered[i].data(), expected.data(), gathered[i].size()), 0);
      }
    }
  });
}

// Sizes at the two ends of an edge: small and large ones against both.
TEST_P(NeighborTest, NeighborsThatDisagreeFindOut) {
  run(2, [](Fabric& fabric) {
    const auto exchange = make_exchange(fabric);
    const int self = fabric.rank().value();
    const Rank other(1 - self);
    const std::size_t counts[][2] = {{10, 11}, {10, 50'000}, {50'000, 10}, {40'000, 50'000}};
    for (const auto& count : counts) {
      std::vector<float> input(count[self], 1.0f);
      std::vector<float> output(count[self]);
      NeighborCall call{
          .name = "uneven", .input = input.data(), .output = output.data(), .count = count[self]};
      call.sources = {{other}};
      call.destinations = {{other}};
      const Status status = exchange->run(call);
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
      EXPECT_EQ(status.peer(), other);
    }
    average_over<float>(fabric, *exchange, "ring");
  });
}

// The rank that finds out first may never call the exchange again.
TEST_P(NeighborTest, ADisagreementIsHeardFromARankThatDoesNotComeBack) {
  run(2, [](Fabric& fabric) {
    const auto exchange = make_exchange(fabric);
    const bool is_source = fabric.rank() == Rank(0);
    // More than there are slots for, as a source that has sent everything may end before it hears.
    std::vector<double> data(is_source ? 400'000 : 300'000);
    std::vector<double> output(data.size());
    NeighborCall call;
    call.input = data.data();
    call.output = output.data();
    call.count = data.size();
    call.type = DataType::kFloat64;
    (is_source ? call.destinations : call.sources).push_back({Rank(is_source ? 1 : 0)});
    const Status status = exchange->run(call);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    sync(fabric, "done");
  });
}

TEST_P(NeighborTest, ANeighborThatDoesNotComeIsNamedAndForgotten) {
  run(3, [](Fabric& fabric) {
    const auto exchange = make_exchange(fabric);
    const int self = fabric.rank().value();
    if (self != 2) {
      float x = 1;
      float y = 0;
      NeighborCall call{.name = "lonely", .input = &x, .output = &y, .count = 1};
      call.sources = {{Rank(2)}};
      const auto request = exchange->start(call);
      ASSERT_TRUE(request.is_ok());
      const Status status = exchange->wait(*request, std::chrono::milliseconds(100));
      EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
      EXPECT_NE(status.message().find("'lonely' 1"), std::string::npos) << status.to_string();
      EXPECT_NE(status.to_string().find("rank 2"), std::string::npos) << status.to_string();
      EXPECT_EQ(exchange->outstanding(), 0u);
    }
    average_over<double>(fabric, *exchange, "complete");
  });
}

TEST_P(NeighborTest, AllRanksFindOutThatNeighborsDontMatch) {
  run(4, [](Fabric& fabric) {
    auto communicator = Communicator::create(fabric, {});
    ASSERT_TRUE(communicator.is_ok()) << communicator.status().to_string();
    const auto exchange = make_exchange(fabric);
    const int self = fabric.rank().value();
    NeighborCall call;
    if (self == 1) call.sources = {{Rank(0)}};
    if (self == 3) call.destinations = {{Rank(2)}};
    const Status status = check_neighbors(**communicator, call);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("rank 1 expects rank 0, which does not send"),
              std::string::npos)
        << status.to_string();
    EXPECT_NE(status.message().find("rank 3 sends to rank 2, which does not expect"),
              std::string::npos)
        << status.to_string();
    call.sources = {{Rank((self + 1) % 4)}};
    call.destinations = {{Rank((self + 3) % 4)}};
    EXPECT_TRUE(check_neighbors(**communicator, call).is_ok());
    average_over<float>(fabric, *exchange, "ring");
    sync(fabric, "done");
  });
}

TEST_P(NeighborTest, WhatIsWrongAtOnceIsRefused) {
  run(2, [](Fabric& fabric) {
    const auto exchange = make_exchange(fabric);
    const int self = fabric.rank().value();
    float data[4] = {};
    NeighborCall call{.input = data, .output = data, .count = 4};
    const auto code = [&] { return exchange->start(call).status().code(); };
    call.sources = {{Rank(self)}};
    EXPECT_EQ(code(), Code::kInvalidArgument);
    call.sources = {{Rank(2)}};
    EXPECT_EQ(code(), Code::kOutOfRange);
    call.sources = {{Rank(1 - self)}, {Rank(1 - self)}};
    EXPECT_EQ(code(), Code::kInvalidArgument);
    call.sources = {};
    call.output = data + 1;
    EXPECT_EQ(code(), Code::kInvalidArgument);
    call.output = data;
    call.type = DataType::kInt32;
    EXPECT_EQ(code(), Code::kInvalidArgument);
    call.type = DataType::kFloat64;
    for (const std::size_t huge : {std::size_t{1} << 61, SIZE_MAX}) {  // its bytes overflow
      call.count = huge;
      EXPECT_EQ(code(), Code::kInvalidArgument);
    }
    EXPECT_EQ(exchange->outstanding(), 0u);
    EXPECT_EQ(NeighborExchange::create(fabric, {.name = "tiny", .slot_bytes = 64}).status().code(),
              Code::kInvalidArgument);
  });
}

// Calls that need the dead rank fail. The survivors' calls among themselves go on.
TEST(NeighborDeath, EndsTheCallsThatNeedIt) {
  run_ranks({.kind = PeerKind::kProcesses, .size = 3, .killed = {2}, .configure = {}},
            [](Fabric& fabric) {
              const auto exchange = make_exchange(fabric);
              const int self = fabric.rank().value();
              average_over<float>(fabric, *exchange, "complete");
              if (self == 2) kill(getpid(), SIGKILL);
              std::vector<double> input(30'000, 1.0);
              std::vector<double> output(input.size());
              NeighborCall call{.name = "with all",
                                .input = input.data(),
                                .output = output.data(),
                                .count = input.size(),
                                .type = DataType::kFloat64,
                                .self_weight = 0};
              call.sources = {{Rank(1 - self), 0.5}, {Rank(2), 0.5}};
              call.destinations = {{Rank(1 - self)}, {Rank(2)}};
              const Status status = exchange->run(call);
              EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
              EXPECT_EQ(status.peer(), Rank(2));
              call.name = "without";
              call.sources = {{Rank(1 - self), 1.0}};
              call.destinations = {{Rank(1 - self)}};
              const Status survivors = exchange->run(call);
              EXPECT_TRUE(survivors.is_ok()) << survivors.to_string();
              EXPECT_EQ(output, input);
            });
}

INSTANTIATE_TEST_SUITE_P(Peers, NeighborTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
