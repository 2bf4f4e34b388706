// Partial all-reduces over every transport, against the product of the groups' mixing matrices.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/groups/static_schedule.h"
#include "tests/conformance/partial_support.h"
#include "tests/support/group_matrix.h"
#include "tests/support/mixed_models.h"

namespace dunlin::testing {
namespace {

class PartialTest : public OverPeers {};

// Memory from allocate(), other memory, or one of them, depending on the rank.
enum class Place { kOwn, kOther, kEither };

struct Sequence {
  PartialOptions options{};
  std::size_t count = 0;
  int groups = 0;
  Place place = Place::kOwn;
  bool is_in_place = true;
};

// `digests` has the hash of each operation's result here, or 0 if this rank was no member.
void expect_same_bits(Fabric& fabric, const std::string& name,
                      const std::vector<std::uint64_t>& digests) {
  const auto key = [&](int rank) { return fmt::format("bits of {}/{}", name, rank); };
  const auto bytes = std::as_bytes(std::span(digests));
  ASSERT_TRUE(fabric.bootstrap().publish(key(fabric.rank().value()), bytes).is_ok());
  for (int rank = 0; rank < fabric.rank().value(); ++rank) {
    const auto found = fabric.bootstrap().lookup(key(rank), fabric.config().deadline);
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    std::vector<std::uint64_t> theirs(digests.size());
    ASSERT_EQ(found->size(), bytes.size());
    std::memcpy(theirs.data(), found->data(), found->size());
    for (std::size_t i = 0; i < digests.size(); ++i) {
      if (digests[i] == 0 || theirs[i] == 0) continue;
      ASSERT_EQ(digests[i], theirs[i]) << "operation " << i << ", rank " << rank;
    }
  }
}

template <typename T>
std::uint64_t digest(std::span<const T> model) {
  const std::string_view bytes(reinterpret_cast<const char*>(model.data()), model.size_bytes());
  return std::hash<std::string_view>()(bytes) | 1;
}

// Random groups, one after the other. Every rank draws the same ones.
template <typename T>
void average_randomly(Fabric& fabric, const Sequence& sequence) {
  const auto partial = make_partial(fabric, sequence.options);
  const std::size_t count = sequence.count;
  const bool is_own = sequence.place == Place::kOwn ||
                      (sequence.place == Place::kEither && fabric.rank().value() % 2 == 0);
  std::vector<T> other(is_own ? 0 : 2 * count);
  const auto memory = partial->allocate(2 * count * sizeof(T)).value();
  std::span<T> model(is_own ? reinterpret_cast<T*>(memory.data()) : other.data(), count);
  std::span<T> next(model.data() + count, count);
  for (std::size_t e = 0; e < count; ++e)
    model[e] = static_cast<T>(MixedModels::initial(fabric.rank().index(), e));

  std::mt19937_64 random(count + 17);
  MixedModels expected(fabric.size());
  std::vector<std::uint64_t> digests(static_cast<std::size_t>(sequence.groups) + 1);
  for (int i = 1; i <= sequence.groups; ++i) {
    const Members group = MixedModels::draw_group(random, fabric.size());
    expected.average(group);
    if (std::ranges::find(group, fabric.rank()) == group.end()) continue;
    PartialCall call = call_on(static_cast<std::uint64_t>(i) * 3, group, model);
    if (!sequence.is_in_place) call.output = next.data();
    const Status status = partial->run(call);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    if (!sequence.is_in_place) std::swap(model, next);
    digests[static_cast<std::size_t>(i)] = digest<T>(model);
  }
  const double bound = sizeof(T) == sizeof(double) ? 1e-13 : 1e-5;
  for (std::size_t e = 0; e < count; ++e)
    ASSERT_NEAR(model[e], expected.value(fabric.rank(), e), bound) << e;
  EXPECT_EQ(partial->statistics().failures, 0u);
  expect_same_bits(fabric, sequence.options.name, digests);
  sync(fabric, fmt::format("{} is over", sequence.options.name));
}

TEST_P(PartialTest, RandomGroupsMixAsTheirMatricesSay) {
  run(8, [](Fabric& fabric) {
    int runs = 0;
    for (const std::size_t count : {0u, 1u, 1001u, 4'097u}) {
      const auto name = [&] {
        PartialOptions options;
        options.name = fmt::format("run {}", ++runs);
        return options;
      };
      average_randomly<float>(fabric, {.options = name(), .count = count, .groups = 200});
      average_randomly<double>(
          fabric, {.options = name(), .count = count, .groups = 200, .is_in_place = false});
    }
  });
}

// Models that are longer than scratch and staging memory, also with programs that put over any
// transport.
TEST_P(PartialTest, LongModelsInEveryMemory) {
  run(5, [](Fabric& fabric) {
    int runs = 0;
    for (const char* const algorithm : {"", "ring", "halving-doubling"}) {
      for (const Place place : {Place::kOwn, Place::kOther, Place::kEither}) {
        for (const bool is_in_place : {true, false}) {
          const PartialOptions options{.name = fmt::format("run {}", ++runs),
                                       .scratch_bytes = 64 << 10,
                                       .segment_bytes = 8 << 10,
                                       .algorithm = algorithm};
          average_randomly<double>(fabric, {.options = options,
                                            .count = 300'001,
                                            .groups = 4,
                                            .place = place,
                                            .is_in_place = is_in_place});
        }
      }
    }
  });
}

TEST_P(PartialTest, OtherTypesAndOperations) {
  run(3, [](Fabric& fabric) {
    const auto partial = make_partial(fabric);
    std::vector<std::int32_t> values(1000, 1 << fabric.rank().value());
    PartialCall call{.number = 1, .members = ranks({2, 0})};
    call.input = call.output = values.data();
    call.count = values.size();
    call.reduction = {DataType::kInt32, ReduceOp::kSum};
    if (fabric.rank() != Rank(1)) {
      ASSERT_TRUE(partial->run(call).is_ok());
    }
    EXPECT_THAT(values, ::testing::Each(fabric.rank() == Rank(1) ? 2 : 5));
    sync(fabric, "done");
  });
}

// One pair waits for a member that computes; the other pair goes on meanwhile.
TEST_P(PartialTest, DisjointGroupsDoNotWaitForOneAnother) {
  run(4, [](Fabric& fabric) {
    const auto partial = make_partial(fabric);
    const int self = fabric.rank().value();
    std::vector<double> model(10'000, self);
    const std::span<double> all(model);
    if (self < 2) {
      for (std::uint64_t number = 2; number < 52; ++number) {
        const Status status = partial->run(call_on(number, ranks({0, 1}), all));
        ASSERT_TRUE(status.is_ok()) << status.to_string();
      }
      EXPECT_EQ(model[77], 0.5);
    }
    std::optional<PartialRequest> request;
    if (self == 3) {
      request = partial->start(call_on(1, ranks({2, 3}), all)).value();
      EXPECT_TRUE(partial->test(*request).is_busy());
    }
    sync(fabric, "the others have gone on");
    if (self == 3) {
      EXPECT_TRUE(partial->test(*request).is_busy());
      const auto awaited = partial->awaited(*request);
      ASSERT_EQ(awaited.size(), 1u);
      EXPECT_EQ(awaited[0].peer, Rank(2));
    }
    sync(fabric, "the late one may come");
    if (self == 2) request = partial->start(call_on(1, ranks({2, 3}), all)).value();
    if (self >= 2) {
      EXPECT_TRUE(partial->wait(*request, std::chrono::seconds(20)).is_ok());
      EXPECT_EQ(model[77], 2.5);
      EXPECT_EQ(partial->test(*request).code(), Code::kNotFound);
    }
    sync(fabric, "done");
  });
}

// Each rank starts all of its operations at once, and waits for the last one first. The operations
// are those of a chain around all ranks, so that members meet in the middle of one another's
// meetings.
TEST_P(PartialTest, ChainsOfGroupsThatShareRanks) {
  run(6, [](Fabric& fabric) {
    const auto partial = make_partial(fabric);
    const int size = fabric.size();
    std::vector<double> model(501, 0.0);
    for (std::size_t e = 0; e < model.size(); ++e)
      model[e] = MixedModels::initial(fabric.rank().index(), e);
    MixedModels expected(size);
    std::vector<PartialRequest> requests;
    for (int i = 0; i < 8 * size; ++i) {
      // Up the chain, and down again.
      const int first = i / size % 2 == 0 ? i % size : size - 1 - i % size;
      const Members group{Rank(first), Rank((first + 1) % size)};
      expected.average(group);
      if (std::ranges::find(group, fabric.rank()) == group.end()) continue;
      const auto number = static_cast<std::uint64_t>(i) + 1;
      requests.push_back(partial->start(call_on(number, group, std::span(model))).value());
    }
    for (auto request = requests.rbegin(); request != requests.rend(); ++request) {
      const Status status = partial->wait(*request, std::chrono::seconds(20));
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    }
    for (std::size_t e = 0; e < model.size(); ++e)
      ASSERT_NEAR(model[e], expected.value(fabric.rank(), e), 1e-14);
    sync(fabric, "done");
  });
}

// Groups of the static schedule, without training: the models are the product of the groups'
// matrices.
TEST_P(PartialTest, TheStaticScheduleBringsAllTogether) {
  run(8, [](Fabric& fabric) {
    const collective::WorkerLayout layout{.hosts = 2, .workers_per_host = 4};
    const auto schedule = collective::StaticSchedule::make(layout).value();
    const auto partial = make_partial(fabric);
    const int self = fabric.rank().value();
    constexpr std::size_t kCount = 333;
    std::vector<double> model(kCount);
    std::vector<double> mean(kCount);
    for (std::size_t e = 0; e < kCount; ++e) {
      model[e] = MixedModels::initial(fabric.rank().index(), e);
      for (std::size_t rank = 0; rank < 8; ++rank) mean[e] += MixedModels::initial(rank, e) / 8;
    }
    collective::GroupMatrix product(layout.workers());
    double first_error = 0;
    double error = 0;
    for (std::uint64_t iteration = 0; iteration < 160; ++iteration) {
      for (const auto& group : schedule.groups_of(iteration)) product.apply(group);
      const collective::Group group = schedule.group_of(iteration, fabric.rank());
      if (!group.is_alone()) {
        const Status status = partial->run(call_on(group.sequence, group.ranks, std::span(model)));
        ASSERT_TRUE(status.is_ok()) << status.to_string();
      }
      error = 0;
      for (std::size_t e = 0; e < kCount; ++e) {
        double expected = 0;
        for (int rank = 0; rank < 8; ++rank)
          expected += MixedModels::initial(Rank(rank).index(), e) * product.at(rank, self);
        ASSERT_NEAR(model[e], expected, 1e-13) << "iteration " << iteration;
        error = std::max(error, std::abs(model[e] - mean[e]));
      }
      if (iteration == 0) first_error = error;
    }
    EXPECT_GT(first_error, 1e-3);
    EXPECT_LT(error, 1e-8);
    sync(fabric, "done");
  });
}

TEST_P(PartialTest, GroupsThatWereSeenCostNothingAndOthersLittle) {
  run(4, [](Fabric& fabric) {
    const auto partial = make_partial(fabric);
    std::vector<double> model(100, fabric.rank().value());
    const std::span<double> all(model);
    const Members everybody = ranks({0, 1, 2, 3});
    const Members pair = fabric.rank().value() % 2 == 0 ? ranks({0, 2}) : ranks({1, 3});
    EXPECT_EQ(partial->statistics().peers, 0u);
    ASSERT_TRUE(partial->run(call_on(1, pair, all)).is_ok());
    EXPECT_EQ(partial->statistics().peers, 1u);
    ASSERT_TRUE(partial->run(call_on(3, everybody, all)).is_ok());
    EXPECT_EQ(partial->statistics().peers, 3u);
    EXPECT_EQ(partial->statistics().programs_generated, 2u);
    for (std::uint64_t number = 4; number < 8; ++number) {
      // Another pair each time, of which this rank has the same place.
      const int low = fabric.rank().value() % 2;
      const int high = 2 + (number % 2 == 0 ? low : 1 - low);
      const int self = fabric.rank().value();
      const int other = self < 2 ? high : number % 2 == 0 ? self - 2 : 3 - self;
      ASSERT_TRUE(partial->run(call_on(number, ranks({self, other}), all)).is_ok());
    }
    EXPECT_EQ(partial->statistics().programs_generated, 2u);
    EXPECT_EQ(partial->statistics().programs_found, 4u);
    EXPECT_THAT(model, ::testing::Each(1.5));
    // Programs that are not kept are generated again.
    for (std::uint64_t number = 10; number < 210; ++number) {
      const std::size_t count = 1 + number % 100;
      ASSERT_TRUE(partial->run(call_on(number, everybody, all.first(count))).is_ok());
    }
    const auto statistics = partial->statistics();
    EXPECT_EQ(statistics.operations, 206u);
    EXPECT_LE(statistics.programs_kept, 64u);
    EXPECT_GT(statistics.programs_generated, 100u);
    EXPECT_EQ(statistics.programs_generated + statistics.programs_found, 206u);
    EXPECT_THAT(model, ::testing::Each(1.5));
    sync(fabric, "done");
  });
}

TEST_P(PartialTest, WrongArguments) {
  run(2, [](Fabric& fabric) {
    const auto partial = make_partial(fabric);
    double value = fabric.rank().value();
    const std::span<double> model(&value, 1);
    const auto code = [&](const PartialCall& call) { return partial->start(call).status().code(); };
    const Rank self = fabric.rank();
    EXPECT_EQ(code(call_on(0, {self}, model)), Code::kInvalidArgument);
    EXPECT_EQ(code(call_on(1, {self, Rank(2)}, model)), Code::kOutOfRange);
    EXPECT_EQ(code(call_on(1, {self, self}, model)), Code::kInvalidArgument);
    EXPECT_EQ(code(call_on(1, {Rank(1 - self.value())}, model)), Code::kInvalidArgument);
    EXPECT_EQ(code(call_on(1, {}, model)), Code::kInvalidArgument);
    PartialCall nowhere = call_on(1, ranks({0, 1}), model);
    nowhere.input = nullptr;
    EXPECT_EQ(code(nowhere), Code::kInvalidArgument);
    double several[4] = {};
    PartialCall shifted = call_on(1, ranks({0, 1}), std::span<double>(several, 3));
    shifted.output = several + 1;
    EXPECT_EQ(code(shifted), Code::kInvalidArgument);
    // Its bytes don't fit into a number; they do, but into no memory.
    for (const std::size_t count : {(std::size_t{1} << 61) + 1, std::size_t{1} << 60}) {
      PartialCall endless = call_on(1, ranks({0, 1}), model);
      endless.count = count;
      EXPECT_EQ(code(endless), Code::kInvalidArgument) << count;
    }
    const auto small =
        PartialAllReduce::create(fabric, {.name = "small", .scratch_bytes = 63, .algorithm = ""});
    EXPECT_EQ(small.status().code(), Code::kInvalidArgument);
    for (const char* const name : {"ring around the rosie", "hierarchical"}) {
      const auto made = PartialAllReduce::create(fabric, {.name = "other", .algorithm = name});
      EXPECT_EQ(made.status().code(), Code::kInvalidArgument) << name;
    }
    // Nothing has begun; alone it is done at once.
    EXPECT_TRUE(partial->run(call_on(4, {self}, model)).is_ok());
    EXPECT_EQ(value, self.value());
    EXPECT_EQ(code(call_on(4, ranks({0, 1}), model)), Code::kInvalidArgument);
    EXPECT_TRUE(partial->run(call_on(5, ranks({1, 0}), model)).is_ok());
    EXPECT_EQ(value, 0.5);

    const auto memory = partial->allocate(64).value();
    EXPECT_EQ(partial->free(memory.subspan(8)).code(), Code::kInvalidArgument);
    const std::span<double> own(reinterpret_cast<double*>(memory.data()), 8);
    if (self == Rank(0)) {
      const auto request = partial->start(call_on(6, ranks({0, 1}), own)).value();
      EXPECT_EQ(partial->free(memory).code(), Code::kInvalidArgument);
      sync(fabric, "one has begun");
      EXPECT_TRUE(partial->wait(request, std::chrono::seconds(20)).is_ok());
    } else {
      sync(fabric, "one has begun");
      EXPECT_TRUE(partial->run(call_on(6, ranks({0, 1}), own)).is_ok());
    }
    sync(fabric, "no operation uses it");
    EXPECT_TRUE(partial->free(memory).is_ok());
    sync(fabric, "done");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, PartialTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
