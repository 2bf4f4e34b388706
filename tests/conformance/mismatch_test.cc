// Members that make different calls: each of them gets an error that names both calls, long before
// its deadline, and no byte outside their own outputs is written. Every algorithm, over every
// transport.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::Algorithm;
using collective::Call;
using collective::Collective;
using collective::CollectiveRequest;
using collective::Communicator;
using collective::CommunicatorOptions;
using collective::DataType;
using collective::ReduceOp;
using transport::Fabric;

constexpr int kSize = 3;
constexpr int kDeviant = 2;  // the member whose call differs
constexpr std::size_t kCount = 1200;
constexpr std::size_t kLongest = kSize * kCount;  // elements of the longest buffer
constexpr std::size_t kElements = 4 * kLongest;   // of each member's memory
constexpr std::size_t kInputAt = kLongest / 2;
constexpr std::size_t kOutputAt = 2 * kLongest;
constexpr std::size_t kShift = 64;  // elements

// A way to differ from the calls of the other members. `other`: memory that is not the
// communicator's.
struct Deviation {
  std::string name;
  std::function<bool(const Algorithm&)> applies;
  std::function<void(Call&, Communicator&, std::vector<float>& other)> apply;
};

bool always(const Algorithm&) {
  return true;
}

bool has_data(const Algorithm& algorithm) {
  return algorithm.collective != Collective::kBarrier;
}

bool is_rooted(const Algorithm& algorithm) {
  return collective::Problem{algorithm.collective, kSize}.is_rooted();
}

bool reduces(const Algorithm& algorithm) {
  return collective::Problem{algorithm.collective, kSize}.reduces();
}

// Whether other members access this member's output (communicator.h, "Matching calls").
bool has_common_output(const Algorithm& algorithm) {
  return has_data(algorithm) &&
         (algorithm.needs_mapped_peers || algorithm.collective != Collective::kReduce);
}

bool has_common_input(const Algorithm& algorithm) {
  return has_data(algorithm) && (algorithm.needs_mapped_peers || !is_rooted(algorithm));
}

const Algorithm* other_algorithm(const Algorithm& algorithm, bool is_all_mapped) {
  for (const Algorithm& other : collective::algorithms()) {
    if (other.collective != algorithm.collective || other.name == algorithm.name) continue;
    if (!other.needs_mapped_peers || is_all_mapped) return &other;
  }
  return nullptr;
}

std::vector<Deviation> deviations() {
  return {
      {"Operator", reduces,
       [](Call& call, Communicator&, auto&) { call.reduction.op = ReduceOp::kMax; }},
      {"Type", has_data,
       [](Call& call, Communicator&, auto&) { call.reduction.type = DataType::kInt32; }},
      {"Count", has_data, [](Call& call, Communicator&, auto&) { call.count /= 2; }},
      {"Root", is_rooted, [](Call& call, Communicator&, auto&) { call.root = 1; }},
      {"Input", has_common_input,
       [](Call& call, Communicator&, auto&) {
         call.input = static_cast<const float*>(call.input) + kShift;
       }},
      {"Output", has_common_output,
       [](Call& call, Communicator&, auto&) {
         call.output = static_cast<float*>(call.output) + kShift;
       }},
      {"InPlace",
       [](const Algorithm& algorithm) { return algorithm.collective == Collective::kAllReduce; },
       [](Call& call, Communicator&, auto&) { call.input = call.output; }},
      {"Algorithm", always,
       [](Call& call, Communicator& communicator, auto&) {
         const Algorithm* const own =
             collective::find_algorithm(call.collective, call.algorithm).value();
         const Algorithm* const other = other_algorithm(*own, communicator.is_all_mapped());
         if (other != nullptr) {
           call.algorithm = other->name;
         } else {
           call = {Collective::kBarrier};
         }
       }},
      {"Collective", has_data,
       [](Call& call, Communicator&, auto&) { call = {Collective::kBarrier}; }},
      {"Name", has_data, [](Call& call, Communicator&, auto&) { call.name = "another"; }},
      {"CallWithoutElements", has_data,
       [](Call& call, Communicator& communicator, auto&) {
         Call empty = call;
         empty.count = 0;
         EXPECT_TRUE(communicator.start(empty).is_ok());
       }},
      {"Memory", has_common_output,
       [](Call& call, Communicator&, std::vector<float>& other) {
         other.assign(2 * kLongest, 1);
         call.input = other.data();
         call.output = other.data() + kLongest;
       }},
  };
}

class Trial {
 public:
  Trial(Fabric& fabric, const Algorithm& algorithm, Deviation deviation)
      : algorithm_(algorithm), deviation_(std::move(deviation)) {
    CommunicatorOptions options;
    options.name = std::string(to_string(algorithm.collective)) + " " +
                   std::string(algorithm.name) + " " + deviation_.name;
    options.scratch_bytes = 1 << 20;
    options.segment_bytes = 1024;
    communicator_ = Communicator::create(fabric, options).value();
    memory_ =
        reinterpret_cast<float*>(communicator_->allocate(kElements * sizeof(float)).value().data());
    for (std::size_t i = 0; i < kElements; ++i) memory_[i] = initial(i);
  }

  Communicator& communicator() { return *communicator_; }

  void start() {
    call_ = {algorithm_.collective, memory_ + kInputAt, memory_ + kOutputAt, kCount, {}, 0,
             algorithm_.name};
    if (communicator_->rank() == kDeviant) deviation_.apply(call_, *communicator_, other_);
    auto request = communicator_->start(call_);
    if (request) request_ = *request;
    status_ = request.status();
  }

  // Tests the call. Returns true once it has ended and was judged.
  bool test() {
    if (is_over_) return true;
    if (status_.is_ok()) {
      Status status = communicator_->test(request_);
      if (status.is_busy()) return false;
      status_ = std::move(status);
    }
    is_over_ = true;
    judge();
    return true;
  }

  // To be called when no member writes any more.
  void expect_intact() const {
    const auto* const output = static_cast<const float*>(call_.output);
    const std::size_t outputs =
        collective::Problem{call_.collective, kSize, call_.count}.output_count();
    for (std::size_t i = 0; i < kElements; ++i) {
      const bool is_output =
          output != nullptr && memory_ + i >= output && memory_ + i < output + outputs;
      ASSERT_TRUE(is_output || memory_[i] == initial(i)) << describe() << "element " << i;
    }
  }

 private:
  void judge() {
    const int rank = communicator_->rank();
    if (status_.is_ok()) {
      // It got all that it needs from members that make the same call.
      EXPECT_TRUE(!algorithm_.is_synchronizing && rank != kDeviant && rank != call_.root)
          << describe();
      if (call_.collective == Collective::kBroadcast) expect_broadcast();
      return;
    }
    EXPECT_EQ(status_.code(), Code::kInvalidArgument) << describe() << status_.to_string();
    EXPECT_THAT(std::string(status_.message()), ::testing::HasSubstr("make different calls"))
        << describe();
    EXPECT_THAT(std::string(status_.message()), ::testing::HasSubstr("rank 2 executes"))
        << describe();
    // The error stays.
    EXPECT_EQ(communicator_->barrier().code(), Code::kInvalidArgument) << describe();
  }

  float initial(std::size_t i) const {
    return static_cast<float>(i % 1000) + 0.25F * static_cast<float>(communicator_->rank());
  }

  void expect_broadcast() const {
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(memory_[kOutputAt + i], static_cast<float>((kInputAt + i) % 1000)) << describe();
  }

  std::string describe() const {
    return communicator_name() + ", rank " + std::to_string(communicator_->rank()) + ": ";
  }
  std::string communicator_name() const {
    return std::string(to_string(algorithm_.collective)) + " '" + std::string(algorithm_.name) +
           "', " + deviation_.name;
  }

  const Algorithm& algorithm_;
  Deviation deviation_;
  std::unique_ptr<Communicator> communicator_;
  float* memory_ = nullptr;
  Call call_;
  std::vector<float> other_;
  CollectiveRequest request_;
  Status status_;
  bool is_over_ = false;
};

// Each deviation with a communicator of its own, so that all of them are found out at a time.
void run_trials(Fabric& fabric, const Algorithm& algorithm,
                const std::vector<Deviation>& deviations, const std::string& name) {
  std::vector<std::unique_ptr<Trial>> trials;
  for (const Deviation& deviation : deviations) {
    auto trial = std::make_unique<Trial>(fabric, algorithm, deviation);
    if (algorithm.needs_mapped_peers && !trial->communicator().is_all_mapped()) return;
    trials.push_back(std::move(trial));
  }
  for (const auto& trial : trials) trial->start();
  const TimePoint deadline = fabric.clock().now() + std::chrono::seconds(20) * timeout_factor();
  std::size_t over = 0;
  while (over < trials.size() && fabric.clock().now() < deadline) {
    over = static_cast<std::size_t>(
        std::ranges::count_if(trials, [](const auto& trial) { return trial->test(); }));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  EXPECT_EQ(over, trials.size()) << "some calls have not ended";
  sync(fabric, name + ": all calls have ended");
  for (const auto& trial : trials) trial->expect_intact();
  sync(fabric, name + ": the communicators can go");
}

class MismatchTest : public ::testing::TestWithParam<const Algorithm*> {};

TEST_P(MismatchTest, EveryMemberGetsAnErrorThatNamesBothCalls) {
  const Algorithm& algorithm = *GetParam();
  run_ranks({.kind = PeerKind::kThreads, .size = kSize, .killed = {}, .configure = {}},
            [&](Fabric& fabric) {
              // start() with other memory waits until the others have such memory, too.
              const auto starts_at_once = [](const Deviation& deviation) {
                return deviation.name != "Memory";
              };
              std::vector<Deviation> all = deviations();
              std::erase_if(all, [&](const Deviation& each) { return !each.applies(algorithm); });
              const auto others = std::ranges::stable_partition(all, starts_at_once);
              run_trials(fabric, algorithm, {all.begin(), others.begin()}, "at once");
              run_trials(fabric, algorithm, {others.begin(), others.end()}, "the rest");
            });
}

std::vector<const Algorithm*> all_algorithms() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& algorithm : collective::algorithms()) all.push_back(&algorithm);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Algorithms, MismatchTest, ::testing::ValuesIn(all_algorithms()),
                         [](const auto& test) {
                           std::string name = std::string(to_string(test.param->collective)) + "_" +
                                              std::string(test.param->name);
                           for (char& letter : name) letter = letter == '-' ? '_' : letter;
                           return name;
                         });

// The members' calls agree, but one of them makes another one before.
TEST(MismatchTest, AMissingCallIsFoundOut) {
  run_ranks({.kind = PeerKind::kThreads, .size = kSize, .killed = {}, .configure = {}},
            [](Fabric& fabric) {
              auto communicator = Communicator::create(fabric, {}).value();
              std::vector<float> values(100, 1);
              Status status;
              if (communicator->rank() != kDeviant) status = communicator->barrier();
              if (status.is_ok())
                status = communicator->all_reduce(values.data(), values.data(), 100, {});
              EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
              EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("barrier"));
              const auto* const chosen =
                  communicator->choose({Collective::kAllReduce, nullptr, nullptr, 100}).value();
              EXPECT_THAT(std::string(status.message()),
                          ::testing::HasSubstr(
                              fmt::format("all-reduce '{}' of 100 float32 (sum)", chosen->name)));
              sync(fabric, "the communicator can go");
            });
}

// A member that waits for a late one compares the last calls, one of which used memory that was
// freed since. The address sanitizer would report that this memory is read.
TEST(MismatchTest, MemoryThatWasFreedIsNotRead) {
  run_ranks(
      {.kind = PeerKind::kThreads, .size = 2, .killed = {}, .configure = {}}, [](Fabric& fabric) {
        auto communicator = Communicator::create(fabric, {}).value();
        const auto reduce = [&](float* value) {
          // Longer than it takes until members compare.
          if (fabric.rank() == Rank(1)) std::this_thread::sleep_for(std::chrono::milliseconds(500));
          *value = 1;
          const Status status = communicator->all_reduce(value, value, 1, {DataType::kFloat32});
          EXPECT_TRUE(status.is_ok()) << status.to_string();
          EXPECT_EQ(*value, 2);
        };
        const auto kept = communicator->allocate(sizeof(float)).value();
        const auto freed = communicator->allocate(sizeof(float)).value();
        reduce(reinterpret_cast<float*>(freed.data()));
        ASSERT_TRUE(communicator->free(freed).is_ok());
        reduce(reinterpret_cast<float*>(kept.data()));
        reduce(reinterpret_cast<float*>(kept.data()));
        sync(fabric, "compared");
      });
}

// A member that does not call at all is no mismatch, even if calls fill the queue: run() ends at
// the deadline.
TEST(MismatchTest, AFullQueueEndsAtTheDeadline) {
  run_ranks(
      {.kind = PeerKind::kThreads,
       .size = 2,
       .killed = {},
       .configure =
           [](Config& config) { config.deadline = std::chrono::seconds(2) * timeout_factor(); }},
      [](Fabric& fabric) {
        sync(fabric, "both are there");  // so that creating it doesn't take the deadline
        auto communicator = Communicator::create(fabric, {}).value();
        auto* const value = reinterpret_cast<float*>(communicator->allocate(64).value().data());
        if (communicator->rank() == 0) {
          const Call call{Collective::kAllReduce, value, value, 1};
          while (communicator->start(call)) {
          }
          const Status status = communicator->run(call);
          EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
          EXPECT_EQ(status.peer(), Rank(1)) << status.to_string();
        }
        const Status met =
            fabric.bootstrap().barrier("the end", std::chrono::seconds(60) * timeout_factor());
        EXPECT_TRUE(met.is_ok()) << met.to_string();
      });
}

}  // namespace
}  // namespace dunlin::testing
