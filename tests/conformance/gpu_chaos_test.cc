// Collectives on the memory of a GPU while the stand-in for CUDA's driver fails, is slow, or a rank
// is killed, by seeds: each call gives the right result or an error that names the driver's call,
// none hangs, and nothing stays allocated.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "collectives/waiting/expiry.h"
#include "runtime/gpu/cuda_driver.h"
#include "tests/conformance/gpu_chaos.h"
#include "tests/support/seeds.h"

namespace dunlin::testing {
namespace {

using collective::Algorithm;
using collective::Call;
using collective::Collective;
using collective::Communicator;
using collective::CommunicatorOptions;
using collective::DataType;
using collective::Problem;
using collective::ReduceOp;
using transport::Fabric;

constexpr int kMostRanks = 3;
constexpr std::size_t kMostCount = 6000;  // elements of each rank's part
constexpr std::size_t kBytes = kMostRanks * kMostCount * sizeof(float);
constexpr int kCalls = 3;
constexpr std::uint64_t kSeeds = 1000;

// Null on a GPU. Ranks that are processes have a stand-in each.
FakeCuda* const kFake = use_gpu_library();

struct Scenario {
  explicit Scenario(std::mt19937_64 random) : mishap(random, 2, kMostRanks) {
    const auto algorithms = collective::algorithms();
    for (Each& each : calls)
      each = {&algorithms[random() % algorithms.size()], random() % kMostCount, random() % 2 == 0};
  }

  Mishap mishap;
  struct Each {
    const Algorithm* algorithm;
    std::size_t count;
    bool is_sum;
  };
  std::array<Each, kCalls> calls;
};

// The input of a rank: small whole numbers, whose sums are exact.
float value_of(int rank, std::size_t index) {
  return static_cast<float>((index * 7 + static_cast<std::size_t>(rank) * 13) % 31);
}

// What the output has to be.
std::vector<float> expected_of(const Scenario::Each& each, int rank, int size) {
  const Problem problem{each.algorithm->collective, size, each.count, 0};
  std::vector<float> found(problem.output_count());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto reduced = [&](std::size_t index) {
      float result = value_of(0, index);
      for (int other = 1; other < size; ++other) {
        const float next = value_of(other, index);
        result = each.is_sum ? result + next : std::max(result, next);
      }
      return result;
    };
    const auto part = static_cast<int>(each.count == 0 ? 0 : i / each.count);
    const std::size_t within = each.count == 0 ? 0 : i % each.count;
    switch (each.algorithm->collective) {
      case Collective::kAllReduce:
      case Collective::kReduce:
        found[i] = reduced(i);
        break;
      case Collective::kReduceScatter:
        found[i] = reduced(static_cast<std::size_t>(rank) * each.count + i);
        break;
      case Collective::kBroadcast:
        found[i] = value_of(0, i);
        break;
      case Collective::kAllGather:
        found[i] = value_of(part, within);
        break;
      case Collective::kAllToAll:
        found[i] = value_of(part, static_cast<std::size_t>(rank) * each.count + within);
        break;
      default:
        break;
    }
  }
  return found;
}

// One rank's part. Returns the first error; `is_over` of others is none.
class Part {
 public:
  Part(const Scenario& scenario, Fabric& fabric, const Verdict& verdict)
      : scenario_(scenario), fabric_(fabric), verdict_(verdict) {}
  ~Part() { settle_copies(stream_.get()); }

  Status run() {
    DUNLIN_ASSIGN(driver_, load_cuda_driver());
    CommunicatorOptions options;
    options.scratch_bytes = 256 << 10;
    options.segment_bytes = 8 << 10;
    options.gpu = 0;
    DUNLIN_ASSIGN(communicator_, Communicator::prepare(fabric_, options));
    DUNLIN_TRY(until([&] { return communicator_->connect(std::chrono::milliseconds(5)); }));
    if (has_given_up_) return Status();
    DUNLIN_ASSIGN(const auto input, communicator_->allocate(kBytes));
    DUNLIN_ASSIGN(const auto output, communicator_->allocate(kBytes));
    DUNLIN_ASSIGN(stream_, driver_->create_stream(0));
    for (const Scenario::Each& each : scenario_.calls) {
      DUNLIN_TRY(run(each, input.data(), output.data()));
      if (has_given_up_) return Status();
    }
    return Status();
  }

 private:
  // Repeats a step that may expire, until it ends or another rank has an error.
  Status until(const std::function<Status()>& step) {
    for (;;) {
      Status status = step();
      if (status.is_ok() || !collective::is_expiry(status)) return status;
      if (verdict_.is_over) {
        has_given_up_ = true;
        return Status();
      }
    }
  }
  Status finish(const collective::CollectiveRequest& request) {
    return until([&] { return communicator_->wait(request, std::chrono::milliseconds(5)); });
  }
  Status copied() {
    const SteadyClock clock;
    return await(*stream_, clock, clock.now() + std::chrono::seconds(60) * timeout_factor(),
                 "a copy of the test");
  }
  Status run(const Call& call) {
    DUNLIN_ASSIGN(const auto request, communicator_->start(call));
    return finish(request);
  }

  Status run(const Scenario::Each& each, std::byte* input, std::byte* output) {
    const int rank = fabric_.rank().value();
    const Collective kind = each.algorithm->collective;
    const Problem problem{kind, scenario_.mishap.size, each.count, 0};
    host_.resize(problem.input_count());
    for (std::size_t i = 0; i < host_.size(); ++i) host_[i] = value_of(rank, i);
    if (!host_.empty()) {
      DUNLIN_TRY(stream_->copy_to_device(input, host_.data(), host_.size() * sizeof(float)));
      DUNLIN_TRY(copied());
    }
    DUNLIN_TRY(run({Collective::kBarrier, nullptr, nullptr, 0}));
    if (has_given_up_) return Status();
    const Reduction reduction{DataType::kFloat32, each.is_sum ? ReduceOp::kSum : ReduceOp::kMax};
    DUNLIN_TRY(run({kind, input, output, each.count, reduction, 0, each.algorithm->name}));
    if (has_given_up_) return Status();
    const std::vector<float> expected = expected_of(each, rank, scenario_.mishap.size);
    if (expected.empty() || kind == Collective::kBarrier ||
        (kind == Collective::kReduce && rank != 0))
      return Status();
    host_.resize(expected.size());
    DUNLIN_TRY(stream_->copy_to_host(host_.data(), output, host_.size() * sizeof(float)));
    DUNLIN_TRY(copied());
    EXPECT_EQ(host_, expected) << to_string(kind) << " '" << each.algorithm->name << "', "
                               << each.count << " elements";
    return Status();
  }

  using Reduction = collective::Reduction;

  const Scenario& scenario_;
  Fabric& fabric_;
  const Verdict& verdict_;
  std::shared_ptr<GpuDriver> driver_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<GpuStream> stream_;
  std::vector<float> host_;  // what copies read or write
  bool has_given_up_ = false;
};

class GpuChaosTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(GpuChaosTest, GivesTheResultOrAnErrorThatNamesTheCall) {
  if (kFake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  const Scenario scenario{std::mt19937_64(GetParam())};
  run_chaos(*kFake, scenario.mishap, GetParam(), [&](Fabric& fabric, const Verdict& verdict) {
    Part part(scenario, fabric, verdict);
    return part.run();
  });
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpuChaosTest, ::testing::Range<std::uint64_t>(0, seeds(kSeeds)));

}  // namespace
}  // namespace dunlin::testing
