// Collectives on the memory of a GPU while the stand-in for CUDA's driver fails, is slow, or a rank
// is killed, by seeds: each call gives the right result or an error that names the driver's call,
// none hangs, and nothing stays allocated.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "collectives/waiting/expiry.h"
#include "runtime/gpu/cuda_driver.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"
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

// What goes wrong with one seed.
enum class Trouble { kNone, kCall, kWork, kDeath };

struct Scenario {
  explicit Scenario(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    kind = random() % 2 == 0 ? PeerKind::kThreads : PeerKind::kProcesses;
    size = 2 + static_cast<int>(random() % 2);
    constexpr std::array kTroubles{Trouble::kNone, Trouble::kCall, Trouble::kCall,
                                   Trouble::kCall, Trouble::kWork, Trouble::kDeath};
    trouble = kTroubles[random() % kTroubles.size()];
    if (trouble == Trouble::kDeath) kind = PeerKind::kProcesses;
    rank = static_cast<int>(random() % static_cast<unsigned>(size));
    // The first calls set the member up.
    number = 1 + random() % (trouble == Trouble::kWork ? 40 : random() % 2 == 0 ? 60 : 400);
    constexpr std::array kCodes{1, 2, 201, 400, 700, 719, 999};
    code = kCodes[random() % kCodes.size()];
    constexpr std::array kDelays{0U, 20U, 500U};
    delay_us = kDelays[random() % kDelays.size()];
    const auto algorithms = collective::algorithms();
    for (int i = 0; i < kCalls; ++i) {
      calls[static_cast<std::size_t>(i)] = {&algorithms[random() % algorithms.size()],
                                            random() % kMostCount, random() % 2 == 0};
    }
  }

  PeerKind kind;
  int size;
  Trouble trouble;
  int rank;              // that it happens to, among processes
  std::uint64_t number;  // of the driver's call or work that fails, or of the call that kills
  int code;
  unsigned delay_us;
  struct Each {
    const Algorithm* algorithm;
    std::size_t count;
    bool is_sum;
  };
  std::array<Each, kCalls> calls;
};

// What the ranks tell one another, in memory that processes share.
struct Shared {
  std::atomic<bool> is_over;  // a rank has an error: the others give up what waits for it
  std::array<std::array<char, 1024>, kMostRanks> errors;
  std::array<char, 64> failed_call;

  // Whether there was no error, or one names the call that failed.
  bool is_named() const {
    bool has_error = false;
    for (const auto& error : errors) {
      has_error = has_error || error[0] != '\0';
      if (failed_call[0] != '\0' && std::strstr(error.data(), failed_call.data()) != nullptr)
        return true;
    }
    return !has_error;
  }
};

template <std::size_t kSize>
void set(std::array<char, kSize>& to, const std::string& text) {
  to[text.copy(to.data(), kSize - 1)] = '\0';
}

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
  Part(const Scenario& scenario, Fabric& fabric, Shared& shared)
      : scenario_(scenario), fabric_(fabric), shared_(shared) {}
  // Waits for copies that access its memory. One poll may fail although they go on.
  ~Part() {
    for (int errors = 0; stream_ != nullptr && errors < 2;) {
      const Status status = stream_->poll();
      if (status.is_ok()) break;
      if (!status.is_busy()) ++errors;
    }
  }

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
      if (shared_.is_over) {
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
    const Problem problem{kind, scenario_.size, each.count, 0};
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
    const std::vector<float> expected = expected_of(each, rank, scenario_.size);
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
  Shared& shared_;
  std::shared_ptr<GpuDriver> driver_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<GpuStream> stream_;
  std::vector<float> host_;  // what copies read or write
  bool has_given_up_ = false;
};

void prepare(const Scenario& scenario, std::uint64_t seed) {
  kFake->delay_us = scenario.delay_us;
  kFake->seed = seed;
  if (scenario.trouble == Trouble::kCall) {
    kFake->failing_code = scenario.code;
    kFake->failing_call = scenario.number;
  } else if (scenario.trouble == Trouble::kWork) {
    kFake->work_code = scenario.code;
    kFake->failing_work = scenario.number;
  } else if (scenario.trouble == Trouble::kDeath) {
    kFake->killing_call = scenario.number;
  }
}

// Whether the driver has kept what the call should have given back.
bool keeps() {
  static const std::set<std::string> kReleases{"cuMemFree",           "cuStreamDestroy",
                                               "cuEventDestroy",      "cuModuleUnload",
                                               "cuIpcCloseMemHandle", "cuDevicePrimaryCtxRelease",
                                               "cuCtxPushCurrent",    "cuMemHostUnregister"};
  return kReleases.contains(kFake->failed_call);
}

void expect_nothing_left() {
  if (!keeps()) dunlin::testing::expect_nothing_left(*kFake);
}

class GpuChaosTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(GpuChaosTest, GivesTheResultOrAnErrorThatNamesTheCall) {
  if (kFake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  const Scenario scenario(GetParam());
  void* const page =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* const shared = new (page) Shared{};
  const bool are_processes = scenario.kind == PeerKind::kProcesses;
  kFake->reset();
  if (!are_processes) prepare(scenario, GetParam());
  RunOptions options{
      .kind = scenario.kind, .size = scenario.size, .killed = {}, .configure = [](Config& config) {
        config.transports = {"shm"};
        config.deadline = std::chrono::seconds(60) * timeout_factor();
      }};
  const bool is_death = scenario.trouble == Trouble::kDeath;
  if (is_death) options.killed = {scenario.rank};
  options.at_end = expect_nothing_left;
  run_ranks(options, [&](Fabric& fabric) {
    const bool is_mine = !are_processes || fabric.rank() == Rank(scenario.rank);
    if (are_processes && is_mine) prepare(scenario, GetParam());
    Status status;
    {
      Part part(scenario, fabric, *shared);
      status = part.run();
    }
    // It made fewer calls.
    if (is_death && is_mine) kill(getpid(), SIGKILL);
    if (are_processes && is_mine) set(shared->failed_call, kFake->failed_call);
    if (status.is_error()) {
      set(shared->errors[static_cast<std::size_t>(fabric.rank().value())], status.to_string());
      shared->is_over = true;
      EXPECT_NE(scenario.trouble, Trouble::kNone) << status.to_string();
    }
    if (!is_death) sync(fabric, "the end");
  });
  if (!are_processes) {
    set(shared->failed_call, kFake->failed_call);
    expect_nothing_left();
  }
  if (scenario.trouble == Trouble::kCall) {
    EXPECT_TRUE(shared->is_named()) << "no error names the failed " << shared->failed_call.data();
    for (const auto& error : shared->errors) {
      if (::testing::Test::HasFailure()) std::fprintf(stderr, "   %s\n", error.data());
    }
  }
  munmap(page, sizeof(Shared));
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpuChaosTest, ::testing::Range<std::uint64_t>(0, seeds(kSeeds)));

}  // namespace
}  // namespace dunlin::testing
