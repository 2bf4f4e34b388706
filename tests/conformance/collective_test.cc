// The collectives over every transport: every algorithm against a float64 reference, in place and
// not, in memory of the communicator and in any other, several at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <random>

#include "collectives/communicator/communicator.h"
#include "collectives/tuner/tuner.h"
#include "tests/support/collective_data.h"
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
using collective::Problem;
using collective::ReduceOp;
using transport::Fabric;

constexpr int kSizes[] = {1, 2, 3, 5};
constexpr std::size_t kCounts[] = {0, 1, 3, 17, 1000, 40'001};

std::vector<float> input_of(const Problem& problem, int rank) {
  std::vector<float> input(problem.input_count());
  for (std::size_t e = 0; e < input.size(); ++e) input[e] = input_element(0, rank, e);
  return input;
}

void run_with(PeerKind kind, int size, const std::function<void(Fabric&, Communicator&)>& body,
              int groups = 0) {
  run_ranks({.kind = kind, .size = size, .killed = {}, .configure = {}}, [&](Fabric& fabric) {
    CommunicatorOptions options;
    options.scratch_bytes = 1 << 20;
    options.groups = groups;
    auto communicator = Communicator::create(fabric, options);
    ASSERT_TRUE(communicator.is_ok()) << communicator.status().to_string();
    body(fabric, **communicator);
    sync(fabric, "the communicator can go");
  });
}

enum class Memory { kOwn, kInPlace, kOther };

// One call of an algorithm, with the result checked.
void run_checked(Communicator& communicator, std::span<std::byte> memory,
                 const Algorithm& algorithm, const Problem& problem, Memory where) {
  const int rank = communicator.rank();
  const std::vector<float> input = input_of(problem, rank);
  std::vector<float> other_input = input;
  std::vector<float> other_output(problem.output_count(), -1);
  auto* const own = reinterpret_cast<float*>(memory.data());
  float* in = own;
  float* out = own + (1 << 18);
  if (where == Memory::kOther) {
    in = other_input.data();
    out = other_output.data();
  } else if (where == Memory::kInPlace) {
    const std::size_t offset = problem.in_place_offset(rank);
    if (problem.collective == Collective::kReduceScatter) {
      out = in + offset;
    } else {
      out = in;
      in = out + offset;
    }
  }
  if (where != Memory::kOther) std::ranges::copy(input, in);
  Call call{problem.collective,
            in,
            out,
            problem.count,
            {DataType::kFloat32, ReduceOp::kSum},
            problem.root,
            algorithm.name};
  const Status status = communicator.run(call);
  const std::string text = std::string(to_string(problem.collective)) + " " +
                           std::string(algorithm.name) + ", " + std::to_string(problem.count) +
                           " elements, memory " + std::to_string(static_cast<int>(where));
  ASSERT_TRUE(status.is_ok()) << text << ": " << status.to_string();
  if (problem.collective == Collective::kReduce && rank != problem.root) return;
  for (std::size_t e = 0; e < problem.output_count(); ++e)
    ASSERT_EQ(out[e], output_element(0, problem, ReduceOp::kSum, rank, e))
        << text << ", element " << e << " of rank " << rank;
}

class Collectives : public ::testing::TestWithParam<std::tuple<PeerKind, int>> {};

TEST_P(Collectives, EveryAlgorithmGivesTheReference) {
  const PeerKind kind = std::get<0>(GetParam());
  const int size = std::get<1>(GetParam());
  run_with(kind, size, [&](Fabric&, Communicator& communicator) {
    const std::span<std::byte> memory = communicator.allocate(std::size_t{8} << 20).value();
    for (const Algorithm& algorithm : collective::algorithms()) {
      if (algorithm.needs_mapped_peers && !communicator.is_all_mapped()) continue;
      for (const std::size_t count : kCounts) {
        const Problem problem{algorithm.collective, size,
                              algorithm.collective == Collective::kBarrier ? 0 : count, size / 2};
        // Broadcasts are of one buffer.
        const bool is_one = algorithm.collective == Collective::kBroadcast;
        for (const Memory where : {Memory::kOwn, Memory::kInPlace, Memory::kOther}) {
          if (where == Memory::kInPlace && algorithm.collective == Collective::kAllToAll) continue;
          run_checked(communicator, memory, algorithm, problem,
                      is_one && where == Memory::kOwn ? Memory::kInPlace : where);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

TEST_P(Collectives, SeveralAtATime) {
  const PeerKind kind = std::get<0>(GetParam());
  const int size = std::get<1>(GetParam());
  run_with(kind, size, [&](Fabric& fabric, Communicator& communicator) {
    constexpr std::size_t kCalls = 12;
    constexpr std::size_t kCount = 5000;
    const std::span<std::byte> memory =
        communicator.allocate(kCalls * kCount * sizeof(float)).value();
    auto* const data = reinterpret_cast<float*>(memory.data());
    for (int round = 0; round < 5; ++round) {
      std::vector<CollectiveRequest> requests;
      for (std::size_t i = 0; i < kCalls; ++i) {
        float* const at = data + i * kCount;
        for (std::size_t e = 0; e < kCount; ++e)
          at[e] = input_element(0, communicator.rank(), e + i);
        // Calls of all kinds and lengths, in the same order on all ranks.
        const std::size_t count = i % 3 == 0 ? 5 : kCount - i;
        const Collective kinds[] = {Collective::kAllReduce, Collective::kBroadcast,
                                    Collective::kAllReduce, Collective::kBroadcast,
                                    Collective::kBroadcast};
        const Call call{
            kinds[i % std::size(kinds)], at, at, count, {DataType::kFloat32, ReduceOp::kSum}};
        requests.push_back(communicator.start(call).value());
      }
      for (std::size_t i = 0; i < kCalls; ++i) {
        const std::size_t index = round % 2 == 0 ? i : kCalls - 1 - i;
        const Status status = communicator.wait(requests[index], std::chrono::seconds(30));
        ASSERT_TRUE(status.is_ok()) << status.to_string();
        const std::size_t kind_of = index % 5;
        const bool is_sum = kind_of == 0 || kind_of == 2;
        const Problem problem{is_sum ? Collective::kAllReduce : Collective::kBroadcast, size,
                              index % 3 == 0 ? std::size_t{5} : kCount - index, 0};
        for (std::size_t e = 0; e < problem.count; ++e) {
          double wanted = 0;
          for (int rank = 0; rank < (is_sum ? size : 1); ++rank)
            wanted += input_element(0, rank, e + index);
          ASSERT_EQ(data[index * kCount + e], static_cast<float>(wanted)) << index << ", " << e;
        }
      }
    }
    (void)fabric;
  });
}

TEST_P(Collectives, TypesAndOperations) {
  const PeerKind kind = std::get<0>(GetParam());
  const int size = std::get<1>(GetParam());
  run_with(kind, size, [&](Fabric&, Communicator& communicator) {
    const int rank = communicator.rank();
    std::vector<std::int64_t> values{rank + 1, -rank, 5};
    ASSERT_TRUE(
        communicator.all_reduce(values.data(), values.data(), 3, {DataType::kInt64, ReduceOp::kMax})
            .is_ok());
    EXPECT_EQ(values, (std::vector<std::int64_t>{size, 0, 5}));
    std::vector<double> averages{static_cast<double>(rank), 1};
    ASSERT_TRUE(communicator
                    .all_reduce(averages.data(), averages.data(), 2,
                                {DataType::kFloat64, ReduceOp::kAverage})
                    .is_ok());
    EXPECT_DOUBLE_EQ(averages[0], (size - 1) / 2.0);
    EXPECT_DOUBLE_EQ(averages[1], 1);
    std::vector<std::uint8_t> bytes(100, 2);
    ASSERT_TRUE(communicator
                    .all_reduce(bytes.data(), bytes.data(), bytes.size(),
                                {DataType::kUint8, ReduceOp::kProduct})
                    .is_ok());
    EXPECT_EQ(bytes[99], static_cast<std::uint8_t>(1 << size));
  });
}

// Random values: the order of sums shows in their last bits.
TEST_P(Collectives, TheSameBitsOnAllRanksAndInEveryRun) {
  const PeerKind kind = std::get<0>(GetParam());
  const int size = std::get<1>(GetParam());
  run_with(kind, size, [&](Fabric&, Communicator& communicator) {
    constexpr std::size_t kCount = 3001;
    std::mt19937 random(static_cast<unsigned>(communicator.rank()));
    std::uniform_real_distribution<float> values(-1, 1);
    std::vector<float> input(kCount);
    for (float& value : input) value = values(random);
    for (const Algorithm& algorithm : collective::algorithms()) {
      if (algorithm.collective != Collective::kAllReduce) continue;
      if (algorithm.needs_mapped_peers && !communicator.is_all_mapped()) continue;
      std::vector<float> first;
      for (int run = 0; run < 3; ++run) {
        std::vector<float> output(kCount);
        ASSERT_TRUE(communicator
                        .run({Collective::kAllReduce,
                              input.data(),
                              output.data(),
                              kCount,
                              {DataType::kFloat32, ReduceOp::kSum},
                              0,
                              algorithm.name})
                        .is_ok());
        if (run == 0) first = output;
        ASSERT_EQ(0, std::memcmp(first.data(), output.data(), kCount * sizeof(float)))
            << algorithm.name;
      }
      std::vector<float> all(kCount * static_cast<std::size_t>(size));
      ASSERT_TRUE(
          communicator.all_gather(first.data(), all.data(), kCount, DataType::kFloat32).is_ok());
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_EQ(0, std::memcmp(first.data(), &all[static_cast<std::size_t>(rank) * kCount],
                                 kCount * sizeof(float)))
            << algorithm.name;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, Collectives,
                         ::testing::Combine(::testing::Values(PeerKind::kThreads),
                                            ::testing::ValuesIn(kSizes)));
INSTANTIATE_TEST_SUITE_P(Processes, Collectives,
                         ::testing::Combine(::testing::Values(PeerKind::kProcesses),
                                            ::testing::Values(2, 4)));

TEST(CollectiveGroups, OfAnyNumber) {
  for (const int groups : {1, 2, 3, 6}) {
    run_with(
        PeerKind::kThreads, 6,
        [&](Fabric&, Communicator& communicator) {
          const std::span<std::byte> memory = communicator.allocate(std::size_t{4} << 20).value();
          for (const char* const name : {"hierarchical", "2d-tga"}) {
            for (const std::size_t count : kCounts) {
              run_checked(communicator, memory,
                          *collective::find_algorithm(Collective::kAllReduce, name).value(),
                          {Collective::kAllReduce, 6, count, 0}, Memory::kOwn);
            }
          }
        },
        groups);
  }
}

TEST(CollectiveSplit, ByColorAndKey) {
  run_with(PeerKind::kThreads, 5, [](Fabric& fabric, Communicator& communicator) {
    const int rank = communicator.rank();
    auto half = communicator.split(rank % 2, -rank);
    ASSERT_TRUE(half.is_ok()) << half.status().to_string();
    EXPECT_EQ((*half)->size(), rank % 2 == 0 ? 3 : 2);
    // The highest rank comes first.
    EXPECT_EQ((*half)->rank(), (rank % 2 == 0 ? 4 - rank : 3 - rank) / 2);
    std::int32_t sum = rank;
    ASSERT_TRUE((*half)->all_reduce(&sum, &sum, 1, {DataType::kInt32, ReduceOp::kSum}).is_ok());
    EXPECT_EQ(sum, rank % 2 == 0 ? 6 : 4);
    sync(fabric, "halves");
  });
}

TEST(CollectiveTuning, SizesThatCannotBeMeasuredAreRefused) {
  run_with(PeerKind::kThreads, 2, [](Fabric&, Communicator& communicator) {
    const auto code = [&](auto&& change) {
      collective::TunerOptions options;
      change(options);
      return collective::tune(communicator, options).status().code();
    };
    for (const std::size_t factor : {0, 1})
      EXPECT_EQ(code([&](auto& options) { options.factor = factor; }), Code::kInvalidArgument);
    EXPECT_EQ(code([](auto& options) { options.smallest_bytes = 0; }), Code::kInvalidArgument);
    for (const std::size_t largest : {std::size_t{7}, std::size_t{1} << 63}) {
      EXPECT_EQ(code([&](auto& options) { options.largest_bytes = largest; }),
                Code::kInvalidArgument);
    }
  });
}

TEST(CollectiveTuning, MeasuresAlikeOnAllRanksAndIsFollowed) {
  run_with(PeerKind::kThreads, 3, [](Fabric&, Communicator& communicator) {
    collective::TunerOptions options;
    options.largest_bytes = 4096;
    options.factor = 32;
    options.time = std::chrono::milliseconds(1);
    auto tuning = collective::tune(communicator, options);
    ASSERT_TRUE(tuning.is_ok()) << tuning.status().to_string();
    ASSERT_FALSE(tuning->choices.empty());
    ASSERT_EQ(tuning->links.size(), 1u);
    EXPECT_GT(tuning->links[0].alpha, 0);
    // All ranks chose the same: the hash of their choices is the same.
    std::int64_t hash =
        static_cast<std::int64_t>(std::hash<std::string>()(collective::to_text(*tuning)) >> 1);
    std::int64_t highest = 0;
    ASSERT_TRUE(
        communicator.all_reduce(&hash, &highest, 1, {DataType::kInt64, ReduceOp::kMax}).is_ok());
    EXPECT_EQ(hash, highest);

    for (auto& choice : tuning->choices) {
      if (choice.collective == Collective::kAllReduce) choice.algorithm = "tree";
    }
    communicator.use(*tuning);
    const Call call{Collective::kAllReduce, nullptr, nullptr, 8};
    EXPECT_EQ(communicator.choose(call).value()->name, "tree");
  });
}

TEST(CollectiveTuning, WithoutOneSmallAllReducesHeedWhatMessagesCost) {
  run_ranks(
      {.kind = PeerKind::kThreads, .size = 3, .killed = {}, .configure = {}}, [](Fabric& fabric) {
        auto communicator = Communicator::create(fabric, {.name = "world", .members = {}}).value();
        const Rank next((fabric.rank().value() + 1) % fabric.size());
        ASSERT_TRUE(fabric.link(next).is_ok());
        const bool is_tcp = fabric.transport_of(next) == "tcp";
        const Call call{Collective::kAllReduce, nullptr, nullptr, 8};
        EXPECT_EQ(communicator->choose(call).value()->name,
                  is_tcp ? "recursive-doubling" : "direct");
        sync(fabric, "chosen");
      });
}

TEST(CollectiveTuning, IsReadFromTheFileByTheFirstMember) {
  const std::string path =
      ::testing::TempDir() + "dunlin-conformance-tuning-" + std::to_string(getpid()) + ".json";
  run_ranks({.kind = PeerKind::kThreads,
             .size = 2,
             .killed = {},
             .configure = [&](Config& config) { config.tuning_file = path; }},
            [&](Fabric& fabric) {
              {
                auto communicator =
                    Communicator::create(fabric, {.name = "before", .members = {}}).value();
                if (communicator->rank() == 0) {
                  collective::Tuning tuning;
                  tuning.shape = communicator->shape();
                  tuning.choices = {{Collective::kAllReduce, 64, "halving-doubling", {}}};
                  ASSERT_TRUE(collective::write_tuning(path, tuning).is_ok());
                }
                ASSERT_TRUE(communicator->barrier().is_ok());
                sync(fabric, "before");
              }
              auto communicator =
                  Communicator::create(fabric, {.name = "after", .members = {}}).value();
              const Call call{Collective::kAllReduce, nullptr, nullptr, 8};
              EXPECT_EQ(communicator->choose(call).value()->name, "halving-doubling");
              sync(fabric, "after");
            });
  std::remove(path.c_str());
}

TEST(CollectiveTuning, CanBeOverruled) {
  run_ranks(
      {.kind = PeerKind::kThreads,
       .size = 2,
       .killed = {},
       .configure = [](Config& config) { config.algorithms = "all-reduce=ring,reduce=tree"; }},
      [](Fabric& fabric) {
        auto communicator = Communicator::create(fabric, {}).value();
        Call call{Collective::kAllReduce, nullptr, nullptr, 1};
        EXPECT_EQ(communicator->choose(call).value()->name, "ring");
        call.algorithm = "tree";
        EXPECT_EQ(communicator->choose(call).value()->name, "tree");
        sync(fabric, "overruled");
      });
  for (const char* const wrong : {"ring", "all-reduce=rings", "allreduce=ring"}) {
    run_ranks({.kind = PeerKind::kThreads,
               .size = 1,
               .killed = {},
               .configure = [&](Config& config) { config.algorithms = wrong; }},
              [](Fabric& fabric) {
                EXPECT_EQ(Communicator::create(fabric, {}).status().code(), Code::kInvalidArgument);
              });
  }
}

TEST(CollectiveErrors, BadCallsAreRefusedAndHarmless) {
  run_with(PeerKind::kThreads, 2, [](Fabric&, Communicator& communicator) {
    float value = 1;
    const auto code = [&](const Call& call) { return communicator.run(call).code(); };
    EXPECT_EQ(code({Collective::kBroadcast, &value, &value, 1, {}, 2}), Code::kOutOfRange);
    EXPECT_EQ(code({Collective::kAllReduce, nullptr, &value, 1}), Code::kInvalidArgument);
    EXPECT_EQ(code({Collective::kAllToAll, &value, &value, 1}), Code::kInvalidArgument);
    EXPECT_EQ(code({Collective::kAllReduce, &value, &value, 1, {}, 0, "rings"}),
              Code::kInvalidArgument);
    EXPECT_EQ(communicator.free({reinterpret_cast<std::byte*>(&value), 4}).code(),
              Code::kInvalidArgument);
    float values[8] = {};
    const int self = communicator.rank();
    EXPECT_EQ(code({Collective::kAllReduce, values, values + 1, 4}), Code::kInvalidArgument);
    EXPECT_EQ(code({Collective::kAllReduce, values + 3, values, 4}), Code::kInvalidArgument);
    EXPECT_EQ(code({Collective::kAllToAll, values, values + 1, 2}), Code::kInvalidArgument);
    // The place for use in place is the member's own block.
    EXPECT_EQ(code({Collective::kAllGather, values + 1 - self, values, 1}), Code::kInvalidArgument);
    EXPECT_EQ(code({Collective::kReduceScatter, values, values + 1 - self, 1}),
              Code::kInvalidArgument);
    ASSERT_TRUE(communicator.all_reduce(&value, &value, 1, {}).is_ok());
    EXPECT_EQ(value, 2);
  });
}

TEST(CollectiveErrors, DifferentCallsAreFoundOut) {
  run_with(PeerKind::kThreads, 2, [](Fabric&, Communicator& communicator) {
    std::vector<float> values(64, 1);
    const std::size_t count = communicator.rank() == 0 ? 8 : 7;
    const Status status =
        communicator.all_reduce(values.data(), values.data(), count, {DataType::kFloat32});
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("make different calls"));
    // The error stays.
    EXPECT_EQ(communicator.barrier().code(), Code::kInvalidArgument);
  });
}

TEST(CollectiveErrors, AMissingMemberIsNamed) {
  run_ranks(
      {.kind = PeerKind::kThreads,
       .size = 2,
       .killed = {},
       .configure =
           [](Config& config) { config.deadline = std::chrono::seconds(2) * timeout_factor(); }},
      [](Fabric& fabric) {
        sync(fabric, "both are there");  // so that creating it doesn't take the deadline
        auto communicator = Communicator::create(fabric, {}).value();
        if (fabric.rank() == Rank(0)) {
          const Status status = communicator->barrier();
          EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
          EXPECT_EQ(status.peer(), Rank(1));
          EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("barrier #0"));
        }
        sync(fabric, "the communicator can go");
      });
}

}  // namespace
}  // namespace dunlin::testing
