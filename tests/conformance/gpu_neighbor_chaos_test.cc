// Averages with neighbors on the memory of a GPU while the stand-in for CUDA's driver fails, is
// slow, or a rank is killed, by seeds (gpu_chaos.h).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "collectives/kernels/average.h"
#include "collectives/neighbor/neighbor_exchange.h"
#include "runtime/gpu/cuda_driver.h"
#include "tests/conformance/gpu_chaos.h"
#include "tests/support/seeds.h"

namespace dunlin::testing {
namespace {

using collective::DataType;
using collective::NeighborCall;
using collective::NeighborExchange;
using collective::NeighborOptions;
using collective::NeighborRequest;
using collective::WeightedRank;
using transport::Fabric;

constexpr int kMostRanks = 4;
constexpr std::size_t kMostCount = 5000;  // some rounds of all slots
constexpr int kRounds = 3;
constexpr int kCalls = 3;  // of a round, which are in progress together
constexpr std::uint64_t kSeeds = 600;

// Null on a GPU. Ranks that are processes have a stand-in each.
FakeCuda* const kFake = use_gpu_library();

struct Edge {
  int from;
  int to;
  double pull;
  double push;
};

struct Planned {
  std::string name;
  std::size_t count = 0;
  bool is_in_place = false;
  double self_weight = 1;
  std::vector<Edge> edges;
};

struct Scenario {
  explicit Scenario(std::mt19937_64 random) : mishap(random, 2, kMostRanks) {
    std::uniform_real_distribution<double> weights(-1, 1);
    for (auto& round : rounds) {
      for (std::size_t i = 0; i < round.size(); ++i) {
        Planned& call = round[i];
        call.name = fmt::format("call {}", i);
        call.count = random() % kMostCount;
        call.is_in_place = random() % 2 == 0;
        call.self_weight = weights(random);
        for (int from = 0; from < mishap.size; ++from) {
          for (int to = 0; to < mishap.size; ++to) {
            if (from == to || random() % 3 == 0) continue;
            call.edges.push_back({from, to, weights(random), weights(random)});
          }
        }
      }
    }
  }

  Mishap mishap;
  std::array<std::array<Planned, kCalls>, kRounds> rounds;
};

std::vector<float> values_of(int rank, std::size_t round, std::size_t call, std::size_t count) {
  std::vector<float> made(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t mixed = i * 7 + static_cast<std::size_t>(rank) * 13 + round * 5 + call * 3;
    made[i] = static_cast<float>(mixed % 31) / 8;
  }
  return made;
}

// What the CPU makes of the values that all ranks are known to have.
std::vector<float> expected_of(const Planned& call, int rank, std::size_t round,
                               std::size_t number) {
  std::vector<float> model = values_of(rank, round, number, call.count);
  std::vector<std::vector<float>> parts;
  std::vector<double> weights;
  for (const Edge& edge : call.edges) {
    if (edge.to != rank) continue;
    parts.push_back(values_of(edge.from, round, number, call.count));
    weights.push_back(edge.pull * edge.push);
  }
  std::vector<const std::byte*> inputs;
  for (const auto& part : parts) inputs.push_back(reinterpret_cast<const std::byte*>(part.data()));
  weighted_average(DataType::kFloat32, reinterpret_cast<std::byte*>(model.data()), model.size(),
                   call.self_weight, inputs, weights);
  return model;
}

// One rank's part. Returns the first error; that others have one is none.
class Part {
 public:
  Part(const Scenario& scenario, Fabric& fabric, const Verdict& verdict)
      : scenario_(scenario), fabric_(fabric), verdict_(verdict) {}
  ~Part() {
    exchange_.reset();
    settle_copies(stream_.get());
  }

  Status run() {
    DUNLIN_ASSIGN(driver_, load_cuda_driver());
    NeighborOptions options;
    options.slot_bytes = 4096;
    options.depth = 2;
    options.gpu = 0;
    DUNLIN_ASSIGN(exchange_, NeighborExchange::create(fabric_, options));
    DUNLIN_ASSIGN(stream_, driver_->create_stream(0));
    for (std::size_t call = 0; call < kCalls; ++call) {
      for (auto* const memory : {&inputs_[call], &outputs_[call]}) {
        DUNLIN_ASSIGN(*memory, MemoryRegion::allocate_on_gpu(driver_, 0, kMostCount * 4));
      }
    }
    for (std::size_t round = 0; round < kRounds; ++round) {
      DUNLIN_TRY(run(round));
      if (has_given_up_) break;
    }
    return Status();
  }

 private:
  Status copied() {
    const SteadyClock clock;
    return await(*stream_, clock, clock.now() + std::chrono::seconds(60) * timeout_factor(),
                 "a copy of the test");
  }
  bool is_in_place(std::size_t round, std::size_t call) const {
    return scenario_.rounds[round][call].is_in_place;
  }
  std::byte* output_of(std::size_t round, std::size_t call) const {
    return (is_in_place(round, call) ? inputs_ : outputs_)[call]->data();
  }

  Status run(std::size_t round) {
    std::vector<NeighborRequest> requests;
    for (std::size_t number = 0; number < kCalls; ++number) {
      // Ranks start the calls in different orders.
      const std::size_t call = (number + fabric_.rank().index()) % kCalls;
      DUNLIN_ASSIGN(const NeighborRequest request, start(round, call));
      requests.push_back(request);
    }
    for (const NeighborRequest request : requests) {
      DUNLIN_TRY(finish(request));
      if (has_given_up_) return give_up(requests);
    }
    for (std::size_t call = 0; call < kCalls; ++call) DUNLIN_TRY(check(round, call));
    return Status();
  }
  Result<NeighborRequest> start(std::size_t round, std::size_t number) {
    const Planned& planned = scenario_.rounds[round][number];
    const int self = fabric_.rank().value();
    host_ = values_of(self, round, number, planned.count);
    if (!host_.empty()) {
      DUNLIN_TRY(stream_->copy_to_device(inputs_[number]->data(), host_.data(), host_.size() * 4));
      DUNLIN_TRY(copied());
    }
    NeighborCall call{.name = planned.name,
                      .input = inputs_[number]->data(),
                      .output = output_of(round, number),
                      .count = planned.count,
                      .self_weight = planned.self_weight};
    for (const Edge& edge : planned.edges) {
      if (edge.to == self) call.sources.push_back({Rank(edge.from), edge.pull});
      if (edge.from == self) call.destinations.push_back({Rank(edge.to), edge.push});
    }
    return exchange_->start(call);
  }
  // Another rank may have its error because of a call that has failed here, behind the one that was
  // waited for.
  Status give_up(const std::vector<NeighborRequest>& requests) {
    for (const NeighborRequest request : requests) {
      Status status = exchange_->wait(request, Duration::zero());
      const bool is_expired =
          status.code() == Code::kDeadlineExceeded || status.code() == Code::kPeerStalled;
      if (status.is_error() && !is_expired && status.code() != Code::kNotFound) return status;
    }
    return Status();
  }
  // Waits for the request, until another rank has an error.
  Status finish(NeighborRequest request) {
    for (;;) {
      bool has_ended = false;
      const auto test = [&] {
        Status status = exchange_->test(request);
        has_ended = !status.is_busy();
        return status;
      };
      const auto awaited = [&] { return exchange_->awaited(request); };
      Status status = fabric_.wait(test, awaited, std::chrono::milliseconds(5));
      const bool is_expired =
          status.code() == Code::kDeadlineExceeded || status.code() == Code::kPeerStalled;
      if (has_ended || (!status.is_ok() && !is_expired)) return status;
      if (verdict_.is_over) {
        has_given_up_ = true;
        return Status();
      }
    }
  }
  Status check(std::size_t round, std::size_t number) {
    const Planned& planned = scenario_.rounds[round][number];
    const std::vector<float> expected = expected_of(planned, fabric_.rank().value(), round, number);
    if (expected.empty()) return Status();
    host_.resize(expected.size());
    DUNLIN_TRY(stream_->copy_to_host(host_.data(), output_of(round, number), host_.size() * 4));
    DUNLIN_TRY(copied());
    EXPECT_EQ(host_, expected) << "round " << round << ", '" << planned.name << "'";
    return Status();
  }

  const Scenario& scenario_;
  Fabric& fabric_;
  const Verdict& verdict_;
  std::shared_ptr<GpuDriver> driver_;
  std::array<std::shared_ptr<MemoryRegion>, kCalls> inputs_;
  std::array<std::shared_ptr<MemoryRegion>, kCalls> outputs_;
  std::unique_ptr<NeighborExchange> exchange_;
  std::unique_ptr<GpuStream> stream_;
  std::vector<float> host_;  // what copies read or write
  bool has_given_up_ = false;
};

class GpuNeighborChaosTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(GpuNeighborChaosTest, GivesTheResultOrAnErrorThatNamesTheCall) {
  if (kFake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  const Scenario scenario{std::mt19937_64(GetParam())};
  run_chaos(*kFake, scenario.mishap, GetParam(), [&](Fabric& fabric, const Verdict& verdict) {
    Part part(scenario, fabric, verdict);
    return part.run();
  });
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpuNeighborChaosTest,
                         ::testing::Range<std::uint64_t>(0, seeds(kSeeds)));

}  // namespace
}  // namespace dunlin::testing
