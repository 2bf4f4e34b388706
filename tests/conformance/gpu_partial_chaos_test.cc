// Partial all-reduces on the memory of a GPU while the stand-in for CUDA's driver fails, is slow,
// or a rank is killed, by seeds (gpu_chaos.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/gpu/cuda_driver.h"
#include "tests/conformance/gpu_chaos.h"
#include "tests/conformance/partial_support.h"
#include "tests/support/mixed_models.h"
#include "tests/support/seeds.h"

namespace dunlin::testing {
namespace {

constexpr int kMostRanks = 4;
constexpr std::size_t kMostCount = 6000;
constexpr std::uint64_t kCalls = 6;
constexpr std::uint64_t kSeeds = 400;

// Null on a GPU. Ranks that are processes have a stand-in each.
FakeCuda* const kFake = use_gpu_library();

struct Scenario {
  explicit Scenario(std::mt19937_64 random) : mishap(random, 2, kMostRanks) {
    constexpr std::array kAlgorithms{"", "ring", "halving-doubling"};
    algorithm = kAlgorithms[random() % kAlgorithms.size()];
    for (std::uint64_t number = 1; number <= kCalls; ++number) {
      const Members members = MixedModels::draw_group(random, mishap.size);
      calls.push_back({number, members, random() % kMostCount, random() % 2 == 0});
    }
  }

  struct Each {
    std::uint64_t number;
    Members members;
    std::size_t count;
    bool is_in_place;
  };
  Mishap mishap;
  std::string algorithm;
  std::vector<Each> calls;
};

// Small whole numbers, whose sums are exact.
float value_of(Rank rank, std::uint64_t number, std::size_t index) {
  return static_cast<float>((index * 7 + rank.index() * 13 + number * 3) % 31);
}

// One rank's part. Returns the first error; that others have one is none.
class Part {
 public:
  Part(const Scenario& scenario, Fabric& fabric, const Verdict& verdict)
      : scenario_(scenario), fabric_(fabric), verdict_(verdict) {}
  ~Part() { settle_copies(stream_.get()); }

  Status run() {
    DUNLIN_ASSIGN(driver_, load_cuda_driver());
    PartialOptions options;
    options.scratch_bytes = 64 << 10;
    options.segment_bytes = 4 << 10;
    options.algorithm = scenario_.algorithm;
    options.gpu = 0;
    DUNLIN_ASSIGN(partial_, PartialAllReduce::create(fabric_, options));
    DUNLIN_ASSIGN(const auto input, partial_->allocate(kMostCount * sizeof(float)));
    DUNLIN_ASSIGN(const auto output, partial_->allocate(kMostCount * sizeof(float)));
    DUNLIN_ASSIGN(stream_, driver_->create_stream(0));
    for (const Scenario::Each& each : scenario_.calls) {
      if (std::ranges::find(each.members, fabric_.rank()) == each.members.end()) continue;
      DUNLIN_TRY(run(each, input.data(), each.is_in_place ? input.data() : output.data()));
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

  Status run(const Scenario::Each& each, std::byte* input, std::byte* output) {
    host_.resize(each.count);
    for (std::size_t i = 0; i < host_.size(); ++i)
      host_[i] = value_of(fabric_.rank(), each.number, i);
    if (!host_.empty()) {
      DUNLIN_TRY(stream_->copy_to_device(input, host_.data(), host_.size() * sizeof(float)));
      DUNLIN_TRY(copied());
    }
    PartialCall call{.number = each.number, .members = each.members};
    call.input = input;
    call.output = output;
    call.count = each.count;
    DUNLIN_ASSIGN(const PartialRequest request, partial_->start(call));
    DUNLIN_TRY(finish(request));
    if (has_given_up_ || host_.empty()) return Status();
    DUNLIN_TRY(stream_->copy_to_host(host_.data(), output, host_.size() * sizeof(float)));
    DUNLIN_TRY(copied());
    for (std::size_t i = 0; i < host_.size(); ++i) {
      float sum = 0;
      for (const Rank member : each.members) sum += value_of(member, each.number, i);
      const float expected = sum / static_cast<float>(each.members.size());
      if (host_[i] == expected) continue;
      ADD_FAILURE() << "operation " << each.number << ", element " << i << ": " << host_[i]
                    << " instead of " << expected;
      break;
    }
    return Status();
  }
  // Waits for the request, until another rank has an error.
  Status finish(PartialRequest request) {
    for (;;) {
      bool has_ended = false;
      const auto test = [&] {
        Status status = partial_->test(request);
        has_ended = !status.is_busy();
        return status;
      };
      const auto awaited = [&] { return partial_->awaited(request); };
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

  const Scenario& scenario_;
  Fabric& fabric_;
  const Verdict& verdict_;
  std::shared_ptr<GpuDriver> driver_;
  std::unique_ptr<PartialAllReduce> partial_;
  std::unique_ptr<GpuStream> stream_;
  std::vector<float> host_;  // what copies read or write
  bool has_given_up_ = false;
};

class GpuPartialChaosTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(GpuPartialChaosTest, GivesTheResultOrAnErrorThatNamesTheCall) {
  if (kFake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  const Scenario scenario{std::mt19937_64(GetParam())};
  run_chaos(*kFake, scenario.mishap, GetParam(), [&](Fabric& fabric, const Verdict& verdict) {
    Part part(scenario, fabric, verdict);
    return part.run();
  });
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpuPartialChaosTest,
                         ::testing::Range<std::uint64_t>(0, seeds(kSeeds)));

}  // namespace
}  // namespace dunlin::testing
