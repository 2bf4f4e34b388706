// The collectives, stepped in virtual time on the hostile network, over many seeds: sequences of
// calls of all algorithms, several in progress at a time, with small scratch and short segments.
// The communicator is that of real fabrics. A failure prints its seed; run it alone with
// --gtest_filter=*/SEED.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "tests/sim/hostile_world.h"
#include "tests/support/collective_data.h"
#include "tests/support/seeds.h"

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

// Counts of each rank's part.
constexpr std::size_t kCounts[] = {0, 1, 2, 3, 7, 33, 128, 257, 515};
constexpr std::size_t kPerVector = 3;  // factor for collectives with one vector instead of parts

// One call of all ranks.
struct Planned {
  std::size_t number = 0;
  std::string name;  // tells reduces apart, whose signature does not depend on the place
  const Algorithm* algorithm = nullptr;
  Problem problem;
  ReduceOp op = ReduceOp::kSum;
  DataType type = DataType::kFloat32;
  bool is_in_place = false;
  std::size_t input = 0;  // offset in each rank's memory, in floats
  std::size_t output = 0;

  float expected(int rank, std::size_t e) const {
    return testing::output_element(number, problem, op, rank, e);
  }
  Call call(int rank, float* memory) const {
    const std::size_t within = is_in_place ? problem.in_place_offset(rank) : 0;
    const bool is_gather = problem.collective == Collective::kAllGather;
    return {problem.collective,
            memory + input + (is_gather ? within : 0),
            memory + output + (is_gather ? 0 : within),
            problem.count,
            {type, op},
            problem.root,
            algorithm->name,
            name};
  }
};

// Every third seed has many calls, few of which synchronize, and slow ranks. So other ranks get as
// far ahead as they may, and scratch is reused.
bool is_loose(std::uint64_t seed) {
  return seed % 3 == 0;
}

bool is_slow(std::uint64_t seed, int rank) {
  return is_loose(seed) && (seed / 3 >> rank & 1) != 0;
}

// Calls one after the other, each with memory of its own.
class Plan {
 public:
  Plan(std::mt19937_64& random, int size, std::uint64_t seed, std::size_t calls) {
    std::vector<const Algorithm*> usable;
    std::vector<const Algorithm*> loose;
    for (const Algorithm& algorithm : collective::algorithms()) {
      if (algorithm.needs_mapped_peers && !HostileWorld::maps_memory(seed)) continue;
      usable.push_back(&algorithm);
      if (!algorithm.is_synchronizing) loose.push_back(&algorithm);
    }
    const auto choose = [&](std::size_t from) { return static_cast<std::size_t>(random() % from); };
    for (std::size_t number = 0; number < calls; ++number) {
      Planned next;
      next.number = number;
      next.name = std::to_string(number);
      // All of them in turn over the seeds, in sequences that differ.
      const auto& from = is_loose(seed) && number > 0 && choose(6) != 0 ? loose : usable;
      next.algorithm = from[number == 0 ? seed % from.size() : choose(from.size())];
      const Collective collective = next.algorithm->collective;
      next.problem = {collective, size, 0,
                      static_cast<int>(choose(static_cast<std::size_t>(size)))};
      const bool has_parts = Problem{collective, 2, 1}.input_count() != 1 ||
                             Problem{collective, 2, 1}.output_count() != 1;
      if (collective != Collective::kBarrier)
        next.problem.count = kCounts[choose(std::size(kCounts))] * (has_parts ? 1 : kPerVector);
      next.op = choose(2) == 0 ? ReduceOp::kSum : ReduceOp::kAverage;
      next.is_in_place = collective == Collective::kBroadcast ||
                         (collective != Collective::kAllToAll && choose(2) == 0);
      const std::size_t inputs = next.problem.input_count();
      const std::size_t outputs = next.problem.output_count();
      next.input = floats_;
      next.output = next.is_in_place ? floats_ : floats_ + inputs;
      floats_ += next.is_in_place ? std::max(inputs, outputs) : inputs + outputs;
      calls_.push_back(next);
    }
  }

  // Deviant calls may be shifted by up to kShift floats.
  static constexpr std::size_t kShift = 16;
  std::size_t floats() const { return floats_ + kShift; }
  const std::vector<Planned>& calls() const { return calls_; }

 private:
  std::vector<Planned> calls_;
  std::size_t floats_ = 0;
};

// One rank, which makes its calls whenever it is its turn.
class Member {
 public:
  Member(std::unique_ptr<Communicator> communicator, const Plan& plan)
      : communicator_(std::move(communicator)), plan_(plan), calls_(plan.calls()) {}

  Communicator& communicator() { return *communicator_; }
  // What this rank calls; may be changed before the first act().
  std::vector<Planned>& calls() { return calls_; }
  bool is_over() const { return completed_ == calls_.size() || !error_.is_ok(); }
  const Status& error() const { return error_; }
  std::size_t completed() const { return completed_; }

  void allocate() {
    memory_ = reinterpret_cast<float*>(
        communicator_->allocate(plan_.floats() * sizeof(float)).value().data());
    const int rank = communicator_->rank();
    std::fill_n(memory_, plan_.floats(), std::numeric_limits<float>::quiet_NaN());
    for (const Planned& planned : plan_.calls()) {
      const Problem& problem = planned.problem;
      if (problem.collective == Collective::kBroadcast && problem.root != rank) continue;
      auto* const input =
          const_cast<float*>(static_cast<const float*>(planned.call(rank, memory_).input));
      for (std::size_t e = 0; e < problem.input_count(); ++e)
        input[e] = testing::input_element(planned.number, rank, e);
    }
    initial_.assign(memory_, memory_ + plan_.floats());
  }

  // Checks that nothing but the outputs of the calls so far was written.
  void expect_intact() const {
    std::vector<bool> is_output(plan_.floats());
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const Planned& planned = calls_[i];
      const auto* const output = static_cast<const float*>(planned.call(rank(), memory_).output);
      const auto begin = is_output.begin() + (output - memory_);
      std::fill_n(begin, planned.problem.output_count(), true);
    }
    for (std::size_t i = 0; i < initial_.size(); ++i) {
      ASSERT_TRUE(is_output[i] || std::memcmp(&initial_[i], memory_ + i, sizeof(float)) == 0)
          << "float " << i << " of rank " << rank() << " was written";
    }
  }

  // Makes the next call, or tests the oldest one.
  void act(std::mt19937_64& random) {
    if (is_over()) return;
    if (requests_.size() < calls_.size() && random() % 2 == 0) {
      auto request = communicator_->start(calls_[requests_.size()].call(rank(), memory_));
      if (request) {
        requests_.push_back(*request);
      } else if (!request.status().is_busy()) {
        error_ = std::move(request).status();
      }
      return;
    }
    if (completed_ == requests_.size()) return;
    Status status = communicator_->test(requests_[completed_]);
    if (status.is_ok()) {
      verify(calls_[completed_++]);
    } else if (!status.is_busy()) {
      error_ = std::move(status);
    }
  }

  // A rank that a blocking caller would wait for now.
  Rank awaited() {
    if (completed_ == requests_.size()) return {};
    const Status status = communicator_->wait(requests_[completed_], Duration::zero());
    return status.is_error() && status.peer() ? *status.peer() : Rank();
  }

 private:
  int rank() const { return communicator_->rank(); }

  void verify(const Planned& planned) const {
    const Problem& problem = planned.problem;
    if (problem.collective == Collective::kReduce && problem.root != rank()) return;
    const auto* const output = static_cast<const float*>(planned.call(rank(), memory_).output);
    for (std::size_t e = 0; e < problem.output_count(); ++e) {
      ASSERT_EQ(output[e], planned.expected(rank(), e))
          << "call " << planned.number << ", " << to_string(problem.collective) << " "
          << planned.algorithm->name << " of " << problem.count << ", element " << e << " of rank "
          << rank() << " of " << problem.size;
    }
  }

  std::unique_ptr<Communicator> communicator_;
  const Plan& plan_;
  std::vector<Planned> calls_;
  float* memory_ = nullptr;
  std::vector<float> initial_;
  std::vector<CollectiveRequest> requests_;
  std::size_t completed_ = 0;
  Status error_;
};

std::vector<std::unique_ptr<Member>> make_members(HostileWorld& world, const Plan& plan) {
  constexpr std::size_t kTurns = 8;
  // The least that the algorithms need for nine ranks, and little more, so that calls of hundreds
  // of elements are cut into slices.
  constexpr std::size_t kScratches[] = {45'056, 49'152, 262'144};
  constexpr std::size_t kSegments[] = {16, 256, 1000, std::size_t{256} << 10};
  CommunicatorOptions options;
  options.scratch_bytes = kTurns * kScratches[world.random()() % std::size(kScratches)];
  options.segment_bytes = kSegments[world.random()() % std::size(kSegments)];
  options.groups =
      1 + static_cast<int>(world.random()() % static_cast<std::uint64_t>(world.size()));
  std::vector<std::unique_ptr<Member>> members;
  for (int rank = 0; rank < world.size(); ++rank) {
    members.push_back(
        std::make_unique<Member>(Communicator::prepare(world.fabric(rank), options).value(), plan));
  }
  // A member that has mapped all others waits for their answers. All members share this thread, so
  // the first connect() only asks, and the second one finds the answers.
  std::vector<bool> is_connected;
  for (const auto& member : members)
    is_connected.push_back(member->communicator().connect(Duration::zero()).is_ok());
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    if (is_connected[rank]) continue;
    const Status status = members[rank]->communicator().connect();
    EXPECT_TRUE(status.is_ok()) << status.to_string();
  }
  for (const auto& member : members) {
    EXPECT_EQ(member->communicator().is_all_mapped(), world.network().options().maps_memory);
    member->allocate();
  }
  return members;
}

class CollectiveChaosTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(CollectiveChaosTest, EveryCallGivesItsResult) {
  const std::uint64_t seed = GetParam();
  HostileWorld world(seed, 2 + static_cast<int>(seed % 8));
  const Plan plan(world.random(), world.size(), seed, is_loose(seed) ? 48 : 12);
  const auto members = make_members(world, plan);
  // Pauses in which members become impatient and send probes.
  const bool has_pauses = seed % 5 == 0;
  const bool is_finished = world.run([&](int rank) {
    if (has_pauses && world.random()() % 256 == 0) world.sleep(std::chrono::milliseconds(150));
    Member& member = *members[static_cast<std::size_t>(rank)];
    if (!is_slow(seed, rank) || world.random()() % 32 == 0) member.act(world.random());
    EXPECT_TRUE(member.error().is_ok()) << member.error().to_string();
    return member.is_over();
  });
  ASSERT_TRUE(is_finished) << "seed " << seed << ": nothing moves any more";
}

// A rank dies at a random moment. A rank that can't go on waits for the dead one, or for a rank
// that can't go on either. No rank waits for one that is alive and done. Results that were complete
// before are right.
TEST_P(CollectiveChaosTest, ADeathIsSeenByEveryRankThatWaitsForIt) {
  const std::uint64_t seed = GetParam();
  HostileWorld world(seed, 2 + static_cast<int>(seed % 8));
  const Plan plan(world.random(), world.size(), seed, is_loose(seed) ? 48 : 12);
  const auto members = make_members(world, plan);
  const Rank victim(static_cast<int>(world.random()() % static_cast<std::uint64_t>(world.size())));
  world.network().lose_at(victim, TimePoint() + std::chrono::microseconds(world.random()() % 4000));
  world.run([&](int rank) {
    if (world.network().is_lost(Rank(rank))) return true;
    Member& member = *members[static_cast<std::size_t>(rank)];
    if (!is_slow(seed, rank) || world.random()() % 32 == 0) member.act(world.random());
    if (!member.error().is_ok()) {
      EXPECT_EQ(member.error().code(), Code::kPeerDead) << member.error().to_string();
      EXPECT_EQ(member.error().peer(), victim) << member.error().to_string();
    }
    return member.is_over();
  });
  if (!world.network().is_lost(victim)) return;  // all were faster
  for (int rank = 0; rank < world.size(); ++rank) {
    Rank at(rank);
    for (int hops = 0; at != victim; ++hops) {
      Member& member = *members[at.index()];
      if (member.is_over() && (hops == 0 || !member.error().is_ok())) break;
      const Rank next = member.is_over() ? Rank() : member.awaited();
      ASSERT_TRUE(next != Rank() && hops < world.size())
          << "seed " << seed << ": rank " << rank << " waits, by " << hops << " others, for rank "
          << at.value() << ", which has done " << member.completed() << " calls";
      at = next;
    }
  }
}

// Ways in which a rank's call may differ from that of the other ranks.
enum class Deviation : std::uint8_t {
  kOperator,
  kType,
  kCount,
  kRoot,
  kInput,
  kOutput,
  kAlgorithm,
  kMissing,  // it makes the next one instead
  kTwice,
  kNoElements,  // it makes one without elements before
};
constexpr int kDeviations = 10;

const Algorithm* other_algorithm(const Algorithm& algorithm, bool is_all_mapped) {
  for (const Algorithm& other : collective::algorithms()) {
    if (other.collective == algorithm.collective && other.name != algorithm.name &&
        (is_all_mapped || !other.needs_mapped_peers))
      return &other;
  }
  return nullptr;
}

// Changes call `at`, unless that is no mismatch for this call. Returns whether it did.
bool deviate(std::vector<Planned>& calls, std::size_t at, Deviation deviation, bool is_all_mapped) {
  Planned& call = calls[at];
  Problem& problem = call.problem;
  const bool has_data = problem.count > 0;
  // Only the root of a reduce has an output that matters, and no other rank has an input of it.
  const bool has_output = has_data && problem.collective != Collective::kReduce;
  const auto here = calls.begin() + static_cast<std::ptrdiff_t>(at);
  switch (deviation) {
    case Deviation::kOperator:
      call.op = call.op == ReduceOp::kSum ? ReduceOp::kAverage : ReduceOp::kSum;
      return has_data && problem.reduces();
    case Deviation::kType:
      call.type = DataType::kInt32;
      return has_data;
    case Deviation::kCount:
      if (problem.count < 2) return false;
      --problem.count;
      return !call.is_in_place;
    case Deviation::kRoot:
      problem.root = (problem.root + 1) % problem.size;
      return has_data && problem.is_rooted();
    case Deviation::kInput:
      call.input += Plan::kShift;
      if (call.input < call.output + problem.output_count() &&
          call.output < call.input + problem.input_count())
        return false;  // they overlap: another error
      return has_output && !problem.is_rooted() && !call.is_in_place;
    case Deviation::kOutput:
      call.output += Plan::kShift;
      return has_output && !call.is_in_place;
    case Deviation::kAlgorithm: {
      const Algorithm* const other = other_algorithm(*call.algorithm, is_all_mapped);
      if (other != nullptr) call.algorithm = other;
      return other != nullptr && (has_data || problem.collective == Collective::kBarrier);
    }
    case Deviation::kMissing:
      calls.erase(here);
      return has_data;
    case Deviation::kTwice:
      calls.insert(here, Planned(call));
      return has_data;
    case Deviation::kNoElements: {
      Planned empty = call;
      empty.problem.count = 0;
      calls.insert(here, empty);
      return has_data;
    }
  }
  return false;
}

class MismatchChaosTest : public ::testing::TestWithParam<std::uint64_t> {};

// One rank makes another call. No rank gets a wrong result with ok, and none writes to memory that
// its calls don't name as output. Every rank ends.
TEST_P(MismatchChaosTest, NoRankGetsAWrongResult) {
  const std::uint64_t seed = GetParam();
  HostileWorld world(seed, 2 + static_cast<int>(seed % 8));
  std::mt19937_64& random = world.random();
  const Plan plan(random, world.size(), seed, is_loose(seed) ? 24 : 6);
  const auto members = make_members(world, plan);
  const int deviant = static_cast<int>(random() % static_cast<std::uint64_t>(world.size()));
  std::vector<Planned>& calls = members[static_cast<std::size_t>(deviant)]->calls();
  // Another call in which the ranks meet has to come after the one that differs.
  std::size_t last = plan.calls().size() - 1;
  while (last > 0 && plan.calls()[last].problem.count == 0) --last;
  const auto has_data = [](const Planned& call) { return call.problem.count > 0; };
  const auto end = plan.calls().begin() + static_cast<std::ptrdiff_t>(last);
  if (std::none_of(plan.calls().begin(), end, has_data))
    GTEST_SKIP() << "no call with elements before the last one";
  std::size_t at = 0;
  Deviation deviation{};
  for (bool deviates = false; !deviates;) {
    calls = plan.calls();
    at = static_cast<std::size_t>(random() % last);
    deviation = static_cast<Deviation>(random() % kDeviations);
    deviates = deviate(calls, at, deviation, HostileWorld::maps_memory(seed));
  }
  const auto describe = [&] {
    return ::testing::Message() << "seed " << seed << ", rank " << deviant << " of " << world.size()
                                << " deviates in call " << at << ", "
                                << to_string(plan.calls()[at].problem.collective) << " "
                                << plan.calls()[at].algorithm->name << ", by deviation "
                                << static_cast<int>(deviation);
  };
  int sleeps = 0;
  const auto act = [&](int rank) {
    Member& member = *members[static_cast<std::size_t>(rank)];
    if (sleeps > 0 || !is_slow(seed, rank) || random() % 32 == 0) member.act(random);
    return member.is_over();
  };
  constexpr int kMostSleeps = 60;
  bool is_finished = world.run(act, 200);
  for (; sleeps < kMostSleeps && !is_finished; ++sleeps) {
    world.sleep(std::chrono::milliseconds(100));
    is_finished = world.run(act, 200);
  }
  EXPECT_TRUE(is_finished) << describe() << ": nothing moves any more";
  int errors = 0;
  for (const auto& member : members) {
    member->expect_intact();
    if (member->error().is_ok()) continue;
    ++errors;
    EXPECT_EQ(member->error().code(), Code::kInvalidArgument)
        << describe() << ": " << member->error().to_string();
  }
  EXPECT_GT(errors, 1) << describe();
  // The first of two equal calls matches. Without the missing call, the deviant's own are numbered
  // in another way.
  const std::size_t first = deviation == Deviation::kTwice ? at + 1 : at;
  if (!plan.calls()[first].algorithm->is_synchronizing || plan.calls()[first].problem.count == 0)
    return;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank == deviant && deviation == Deviation::kMissing) continue;
    const std::size_t empty = rank == deviant && deviation == Deviation::kNoElements ? 1 : 0;
    EXPECT_LE(members[static_cast<std::size_t>(rank)]->completed(), first + empty)
        << describe() << ": rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, MismatchChaosTest,
                         ::testing::Range<std::uint64_t>(1, 1 + testing::seeds(1000)),
                         [](const auto& seed) { return std::to_string(seed.param); });

INSTANTIATE_TEST_SUITE_P(Seeds, CollectiveChaosTest,
                         ::testing::Range<std::uint64_t>(1, 1 + testing::seeds(500)),
                         [](const auto& seed) { return std::to_string(seed.param); });

}  // namespace
}  // namespace dunlin::testing
