// Members of a job that come, go and die at random, over a slow and moody path to the coordinator,
// by seeds. The ledger and the members' side of the boundary are the real ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "runtime/bootstrap/job_ledger.h"
#include "runtime/bootstrap/step_boundary.h"

namespace dunlin::bootstrap {
namespace {

constexpr int kFounders = 3;
constexpr int kSize = 12;
constexpr int kTurns = 600;

// One process. It steps in a ring of the members: it ends a step when its neighbor has begun it.
struct Process {
  enum class Phase { kJoining, kAsking, kStepping, kInStep, kWaiting, kReforming, kOver };

  Rank rank{};
  Phase phase = Phase::kJoining;
  Membership membership{};
  StepBoundary boundary{};
  std::uint64_t step = 0;        // that it is in, or has done last
  std::uint64_t first_step = 0;  // of this epoch
  bool wants_to_leave = false;
  bool is_dead = false;  // its process has ended
  std::set<Rank> gone{};
  std::uint64_t last_request = 0;
  std::deque<Message> to_coordinator{};
  std::deque<Message> from_coordinator{};
  int frozen = 0;  // turns in which its path carries nothing
};

class World {
 public:
  explicit World(unsigned seed)
      : random_(seed),
        ledger_({kSize, kFounders}, Duration::zero(), [this](Rank to, const Message& message) {
          processes_.at(to)->from_coordinator.push_back(message);
        }) {
    for (int rank = 0; rank < kFounders; ++rank) add(Rank(rank));
  }

  void run() {
    for (turn_ = 0; turn_ < kTurns; ++turn_) {
      disturb();
      move();
    }
    // No more disturbances: everything that was begun comes to its end.
    is_quiet_ = true;
    for (int turn = 0; turn < 400; ++turn) move();
  }

  void check_end() {
    std::uint64_t epoch = 0;
    for (const auto& [rank, process] : processes_) {
      if (process->is_dead || process->phase == Process::Phase::kOver) continue;
      EXPECT_TRUE(process->phase == Process::Phase::kStepping ||
                  process->phase == Process::Phase::kInStep)
          << "rank " << rank.value() << " hangs in phase " << static_cast<int>(process->phase);
      EXPECT_FALSE(process->wants_to_leave) << "rank " << rank.value() << " could not leave";
      EXPECT_GT(process->step, process->first_step) << "rank " << rank.value() << " stands still";
      if (epoch == 0) epoch = process->membership.epoch;
      EXPECT_EQ(process->membership.epoch, epoch) << "rank " << rank.value();
    }
  }

 private:
  bool chance(unsigned one_in) { return random_() % one_in == 0; }

  void add(Rank rank) {
    auto made = std::make_unique<Process>();
    made->rank = rank;
    processes_[rank] = std::move(made);
    ASSERT_TRUE(ledger_.admit(rank, TimePoint()).is_ok());
    ask(*processes_[rank], MessageType::kJoin);
  }

  void ask(Process& process, MessageType type) {
    process.to_coordinator.push_back(
        {.type = type, .request = ++process.last_request, .number = ~std::uint64_t{0}});
  }

  void disturb() {
    if (chance(40)) {
      if (const auto rank = ledger_.free_rank()) {
        if (has_members()) add(*rank);
      }
    }
    for (auto& [rank, process] : processes_) {
      if (process->is_dead || process->phase == Process::Phase::kOver) continue;
      if (chance(700) && living_members() > 1) {
        process->is_dead = true;
        dying_.push_back(rank);
      } else if (chance(500) && living_members() > 1 && is_member(*process)) {
        process->wants_to_leave = true;
        process->to_coordinator.push_back({.type = MessageType::kRetire});
      } else if (chance(60)) {
        process->frozen = static_cast<int>(random_() % 30);  // an outage of its path
      }
    }
  }

  static bool is_member(const Process& process) {
    return process.phase != Process::Phase::kJoining && process.phase != Process::Phase::kAsking &&
           process.phase != Process::Phase::kOver;
  }
  int living_members() const {
    return static_cast<int>(std::ranges::count_if(processes_, [](const auto& entry) {
      const Process& each = *entry.second;
      return !each.is_dead && !each.wants_to_leave && is_member(each);
    }));
  }
  bool has_members() const { return living_members() > 0; }

  void move() {
    if (!dying_.empty() && (is_quiet_ || chance(5))) {  // the coordinator notices in its own time
      const Rank rank = dying_.back();
      dying_.pop_back();
      ledger_.declare_dead(rank, "killed");
    }
    std::vector<Process*> all;
    for (auto& [rank, process] : processes_) all.push_back(process.get());
    std::ranges::shuffle(all, random_);
    for (Process* const process : all) {
      if (process->frozen > 0 && !is_quiet_) {
        --process->frozen;
      } else {
        carry(*process);
      }
      if (!process->is_dead) advance(*process);
    }
  }

  void carry(Process& process) {
    for (auto left = random_() % 3; left > 0 && !process.to_coordinator.empty(); --left) {
      const Message message = process.to_coordinator.front();
      process.to_coordinator.pop_front();
      EXPECT_TRUE(ledger_.receive(process.rank, message, TimePoint()).is_ok());
    }
    ledger_.tell_departures();
    for (auto left = random_() % 3; left > 0 && !process.from_coordinator.empty(); --left) {
      const Message message = process.from_coordinator.front();
      process.from_coordinator.pop_front();
      if (!process.is_dead) take(process, message);
    }
  }

  void promise(Process& process, std::uint64_t epoch, std::uint64_t step) {
    process.to_coordinator.push_back(
        {.type = MessageType::kStep, .number = step, .value = ByteWriter().number(epoch).take()});
  }

  void take(Process& process, const Message& message) {
    switch (message.type) {
      case MessageType::kAskStep:
        EXPECT_EQ(message.number, process.membership.epoch) << "a question of another epoch";
        if (const auto step = process.boundary.ask()) promise(process, message.number, *step);
        return;
      case MessageType::kBoundary:
        process.boundary.tell(message.number);
        note_boundary(process, message.number);
        return;
      case MessageType::kNotice:
        if (message.state == PeerState::kDead) process.gone.insert(message.subject);
        return;
      case MessageType::kReply:
        if (message.request == process.last_request) answer(process, message);
        return;
      default:
        return;
    }
  }

  void answer(Process& process, const Message& message) {
    using Phase = Process::Phase;
    if (message.code != Code::kOk) {
      process.phase = Phase::kOver;  // the job has ended for it
      return;
    }
    if (process.phase == Phase::kJoining) {
      if (process.rank.value() < kFounders) {
        for (int rank = 0; rank < kFounders; ++rank) process.membership.members.emplace_back(rank);
        enter(process, process.membership, 0);
      } else {
        process.phase = Phase::kAsking;
        if (message.number > 0) process.membership = {message.number, message.ranks};
        ask(process, MessageType::kReform);
      }
    } else if (process.phase == Phase::kReforming || process.phase == Phase::kAsking) {
      enter(process, {message.number, message.ranks}, process.step);
    } else if (process.phase == Phase::kOver) {
      return;
    }
  }

  // All members of an epoch agree on who they are.
  void enter(Process& process, Membership membership, std::uint64_t step) {
    const auto [found, is_first] = epochs_.try_emplace(membership.epoch, membership.members);
    EXPECT_EQ(found->second, membership.members) << "epoch " << membership.epoch;
    EXPECT_TRUE(std::ranges::binary_search(membership.members, process.rank));
    // The members tell one another how far they are (apps/svm/program/standing.h).
    std::uint64_t furthest = step;
    for (const Rank rank : membership.members)
      furthest = std::max(furthest, processes_.at(rank)->step);
    auto& first = first_steps_.try_emplace(membership.epoch, furthest).first->second;
    process.membership = std::move(membership);
    process.boundary.reset();
    process.step = process.first_step = first;
    process.phase = Process::Phase::kStepping;
  }

  void note_boundary(const Process& process, std::uint64_t boundary) {
    const auto epoch = process.membership.epoch;
    EXPECT_EQ(boundaries_.try_emplace(epoch, boundary).first->second, boundary);
    EXPECT_LT(process.step, boundary) << "the boundary is before a step that has begun";
  }

  bool is_struck(const Process& process) const {
    return std::ranges::any_of(process.membership.members,
                               [&](Rank rank) { return process.gone.contains(rank); });
  }

  void reform(Process& process) {
    process.phase = Process::Phase::kReforming;
    ask(process, MessageType::kReform);
  }

  void advance(Process& process) {
    using Phase = Process::Phase;
    if (process.phase != Phase::kStepping && process.phase != Phase::kInStep) return;
    if (is_struck(process)) return reform(process);
    if (process.phase == Phase::kInStep) {
      if (has_neighbor_begun(process)) process.phase = Phase::kStepping;
      return;
    }
    if (chance(4)) return;  // it computes
    std::optional<std::uint64_t> promised;
    const auto outcome = process.boundary.before(process.step + 1, promised);
    if (promised) promise(process, process.membership.epoch, *promised);
    if (outcome == StepBoundary::Outcome::kWait) return;
    if (outcome == StepBoundary::Outcome::kGoOn) {
      ++process.step;
      begun_[process.membership.epoch][process.rank] = process.step;
      process.phase = Phase::kInStep;
      return;
    }
    EXPECT_EQ(boundaries_.at(process.membership.epoch), process.step + 1);
    if (process.wants_to_leave) {
      process.wants_to_leave = false;
      process.phase = Phase::kOver;
      ask(process, MessageType::kLeave);
    } else {
      reform(process);
    }
  }

  // The neighbor in the ring has begun the same step, in the same epoch.
  bool has_neighbor_begun(const Process& process) {
    const auto& members = process.membership.members;
    const auto self = std::ranges::lower_bound(members, process.rank) - members.begin();
    const Rank neighbor = members[static_cast<std::size_t>(self + 1) % members.size()];
    const auto& begun = begun_[process.membership.epoch];
    const auto found = begun.find(neighbor);
    return neighbor == process.rank || (found != begun.end() && found->second >= process.step);
  }

  std::mt19937_64 random_;
  std::map<Rank, std::unique_ptr<Process>> processes_;
  JobLedger ledger_;
  std::vector<Rank> dying_;  // ended, and not noticed yet
  std::map<std::uint64_t, std::vector<Rank>> epochs_;
  std::map<std::uint64_t, std::uint64_t> first_steps_;
  std::map<std::uint64_t, std::uint64_t> boundaries_;
  std::map<std::uint64_t, std::map<Rank, std::uint64_t>> begun_;
  int turn_ = 0;
  bool is_quiet_ = false;
};

class MembershipSeeds : public ::testing::TestWithParam<unsigned> {};

// Each parameter is a hundred seeds.
TEST_P(MembershipSeeds, AllAgreeOnTheMembersAndNobodyHangs) {
  for (unsigned seed = 100 * GetParam(); seed < 100 * (GetParam() + 1); ++seed) {
    World world(seed);
    world.run();
    world.check_end();
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, MembershipSeeds, ::testing::Range(0U, 100U));

}  // namespace
}  // namespace dunlin::bootstrap
