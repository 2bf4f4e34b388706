// The collectives, stepped in virtual time on the hostile network, over many seeds: sequences of
// calls of all algorithms, several under way at a time, with small scratch and short segments. What
// runs is the communicator of real fabrics. A failure prints its seed; run it alone with
// --gtest_filter=*/SEED.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/communicator.h"
#include "tests/sim/hostile_world.h"
#include "tests/support/collective_data.h"

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
using collective::Request;

// Of each rank's part, where everybody has one.
constexpr std::size_t kCounts[] = {0, 1, 2, 3, 7, 33, 128, 257, 515};
constexpr std::size_t kPerVector = 3;  // times as much where there is one vector only

// One call of all ranks.
struct Planned {
  std::size_t number = 0;
  const Algorithm* algorithm = nullptr;
  Problem problem;
  ReduceOp op = ReduceOp::kSum;
  bool is_in_place = false;
  std::size_t input = 0;  // where in each rank's memory, in floats
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
            {DataType::kFloat32, op},
            problem.root,
            algorithm->name};
  }
};

// Every third seed: many calls, few of which synchronize, and ranks that are slow: others get as
// far ahead of them as they may, and scratch is used again.
bool is_loose(std::uint64_t seed) {
  return seed % 3 == 0;
}

bool is_slow(std::uint64_t seed, int rank) {
  return is_loose(seed) && (seed / 3 >> rank & 1) != 0;
}

// Calls one after the other, each with memory of its own.
class Plan {
 public:
  Plan(std::mt19937_64& random, int size, std::uint64_t seed) {
    std::vector<const Algorithm*> usable;
    std::vector<const Algorithm*> loose;
    for (const Algorithm& algorithm : collective::algorithms()) {
      if (algorithm.needs_mapped_peers) continue;  // nobody maps sim memory
      usable.push_back(&algorithm);
      if (!algorithm.is_synchronizing) loose.push_back(&algorithm);
    }
    const std::size_t calls = is_loose(seed) ? 48 : 12;
    const auto choose = [&](std::size_t from) { return static_cast<std::size_t>(random() % from); };
    for (std::size_t number = 0; number < calls; ++number) {
      Planned next;
      next.number = number;
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

  std::size_t bytes() const { return std::max<std::size_t>(1, floats_) * sizeof(float); }
  const std::vector<Planned>& calls() const { return calls_; }

 private:
  std::vector<Planned> calls_;
  std::size_t floats_ = 0;
};

// One rank, which makes its calls whenever it is its turn.
class Member {
 public:
  Member(std::unique_ptr<Communicator> communicator, const Plan& plan)
      : communicator_(std::move(communicator)), plan_(plan) {}

  Communicator& communicator() { return *communicator_; }
  bool is_over() const { return completed_ == plan_.calls().size() || !error_.is_ok(); }
  const Status& error() const { return error_; }
  std::size_t completed() const { return completed_; }

  void allocate() {
    memory_ = reinterpret_cast<float*>(communicator_->allocate(plan_.bytes()).value().data());
    const int rank = communicator_->rank();
    std::fill_n(memory_, plan_.bytes() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
    for (const Planned& planned : plan_.calls()) {
      const Problem& problem = planned.problem;
      if (problem.collective == Collective::kBroadcast && problem.root != rank) continue;
      auto* const input =
          const_cast<float*>(static_cast<const float*>(planned.call(rank, memory_).input));
      for (std::size_t e = 0; e < problem.input_count(); ++e)
        input[e] = testing::input_element(planned.number, rank, e);
    }
  }

  // At times a call is made, at times the oldest one is asked after.
  void act(std::mt19937_64& random) {
    if (is_over()) return;
    if (requests_.size() < plan_.calls().size() && random() % 2 == 0) {
      auto request = communicator_->start(plan_.calls()[requests_.size()].call(rank(), memory_));
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
      verify(plan_.calls()[completed_++]);
    } else if (!status.is_busy()) {
      error_ = std::move(status);
    }
  }

  // What a caller who blocks is told now: somebody whom it waits for.
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
  float* memory_ = nullptr;
  std::vector<Request> requests_;
  std::size_t completed_ = 0;
  Status error_;
};

std::vector<std::unique_ptr<Member>> make_members(HostileWorld& world, const Plan& plan) {
  constexpr std::size_t kTurns = 8;
  // What the algorithms' places take at least, for nine ranks, and little more: calls of hundreds
  // of elements go in slices.
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
  for (const auto& member : members) {
    const Status status = member->communicator().connect();
    EXPECT_TRUE(status.is_ok()) << status.to_string();
  }
  for (const auto& member : members) member->allocate();
  return members;
}

class CollectiveChaosTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(CollectiveChaosTest, EveryCallGivesItsResult) {
  const std::uint64_t seed = GetParam();
  HostileWorld world(seed, 2 + static_cast<int>(seed % 8));
  const Plan plan(world.random(), world.size(), seed);
  const auto members = make_members(world, plan);
  const bool is_finished = world.run([&](int rank) {
    Member& member = *members[static_cast<std::size_t>(rank)];
    if (!is_slow(seed, rank) || world.random()() % 32 == 0) member.act(world.random());
    EXPECT_TRUE(member.error().is_ok()) << member.error().to_string();
    return member.is_over();
  });
  ASSERT_TRUE(is_finished) << "seed " << seed << ": nothing moves any more";
}

// A rank dies at a random moment. Whoever can't go on waits for it, or for somebody who can't go on
// either: nobody waits for one who is alive and done. Results that were complete before are right.
TEST_P(CollectiveChaosTest, ADeathIsSeenByWhoeverWaitsForIt) {
  const std::uint64_t seed = GetParam();
  HostileWorld world(seed, 2 + static_cast<int>(seed % 8));
  const Plan plan(world.random(), world.size(), seed);
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

INSTANTIATE_TEST_SUITE_P(Seeds, CollectiveChaosTest, ::testing::Range<std::uint64_t>(1, 501),
                         [](const auto& seed) { return std::to_string(seed.param); });

}  // namespace
}  // namespace dunlin::testing
