// Ranks write under a mutex while their connections to the coordinator break and heal, while they
// stop, die, are disowned, or are slow. What a rank has put lands at random times, long after it
// was declared dead. An oracle checks that no write of a former holder lands once the next one has
// the mutex. Both protocols of the mutex. A failure prints its seed; run it alone with
// --gtest_filter=*/SEED.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "collectives/rma/mutex_manager.h"
#include "collectives/rma/mutex_words.h"
#include "tests/sim/slow_lane.h"
#include "tests/sim/unreliable_job.h"
#include "tests/support/seeds.h"
#include "transports/fabric.h"
#include "transports/sim/network.h"

namespace dunlin::testing {
namespace {

using collective::LockOutcome;
using collective::MutexManager;
using collective::MutexMembers;
using collective::MutexProtocol;
using collective::MutexWords;
using State = MutexProtocol::State;
using std::chrono::milliseconds;
using transport::Completion;

constexpr int kRounds = 6;
constexpr std::size_t kSlot = 32;     // bytes that a holder writes at each member
constexpr int kGenerations = 256;     // more locks than any run has; one byte each
constexpr long kMostTurns = 200'000;  // far beyond any run that doesn't hang

transport::sim::Options hostile(std::uint64_t seed, int size) {
  transport::sim::Options options;
  options.ranks = size;
  options.seed = seed;
  options.queue_depth = 2 + seed % 8;
  options.hostility.emplace().refusal = 0.1 * static_cast<double>(seed % 4);
  // The delays range from less than the time of a message to the coordinator to more than the grace
  // period.
  constexpr Duration kDelays[] = {milliseconds(1), milliseconds(100), milliseconds(1000),
                                  milliseconds(6000)};
  options.hostility->longest_delay = kDelays[seed / 2 % 4];
  return options;
}

class World {
 public:
  World(std::uint64_t seed, int size)
      : random_(seed),
        network_(transport::sim::Network::create(hostile(seed, size)).value()),
        events_(random_),
        job_(size, random_, network_->now()),
        words_(MutexWords::bytes(static_cast<std::size_t>(size)) / 8),
        ranks_(static_cast<std::size_t>(size)) {
    config_ = Config::parse(Environment()).value();
    config_.transports = {"sim"};
    for (int rank = 0; rank < size; ++rank) {
      Member& member = at(rank);
      member.fabric = transport::Fabric::create(job_.bootstrap(rank), config_, network_->clock(),
                                                nullptr, {network_->factory()})
                          .value();
      member.memory = member.fabric->allocate(kSlot).value();
      member.source =
          member.fabric->allocate(kSlot * static_cast<std::size_t>(kGenerations)).value();
      member.first_cell = member.fabric->board().allocate(static_cast<std::size_t>(size)).value();
    }
    const bool is_managed = seed % 2 == 0;
    for (int rank = 0; rank < size; ++rank) {
      for (int peer = 0; peer < size; ++peer) {
        at(rank).targets.push_back(
            at(rank).fabric->import_region(Rank(peer), at(peer).memory->descriptor()).value());
      }
      at(rank).mutex = is_managed ? make_manager(rank) : make_words(rank);
    }
    plan_faults(size);
  }

  ~World() {
    for (Member& member : ranks_) member.mutex.reset();
    for (Member& member : ranks_) member.targets.clear();
  }

  // One event somewhere. Returns false when all that can be done is done.
  bool turn() {
    const int rank = draw(size());
    Member& member = at(rank);
    inject_faults();
    if (!member.is_stopped && !member.has_ended) {
      if (draw(2) == 0) job_.monitor(rank, network_->now());
      if (draw(4) != 0) {
        member.fabric->progress();
        act(rank);
      }
    }
    job_.serve(network_->now());
    events_.run_one();
    const TimePoint until = network_->now() + milliseconds(1 + draw(4));
    network_->wake_at(Rank(0), until);
    while (network_->now() < until && network_->step()) {
    }
    check_memory();
    return !is_finished();
  }

  int takeovers() const { return takeovers_; }
  int ghosts() const { return ghosts_; }
  std::string describe() const {
    std::string text;
    for (int rank = 0; rank < size(); ++rank) {
      const Member& member = ranks_[static_cast<std::size_t>(rank)];
      text += "rank " + std::to_string(rank) + ": " + std::to_string(member.rounds) +
              " rounds, state " + std::to_string(static_cast<int>(member.mutex->state())) +
              (member.has_ended ? ", ended" : "") + (member.is_stopped ? ", stopped" : "") +
              (is_over(rank) ? ", over" : "") + "\n";
    }
    return text;
  }

 private:
  struct Member {
    std::deque<Completion> completions;  // the fabric fires what is outstanding when it ends
    std::unique_ptr<transport::Fabric> fabric;
    std::unique_ptr<transport::LocalRegion> memory;  // what the mutex protects
    std::unique_ptr<transport::LocalRegion> source;
    std::vector<std::unique_ptr<transport::RemoteRegion>> targets;
    transport::NotifyId first_cell{};
    std::vector<std::unique_ptr<SlowLink>> slow_links;
    std::unique_ptr<MutexProtocol> mutex;
    int generation = 0;  // of its lock; 0: it doesn't hold the mutex
    int writes_left = 0;
    bool is_flushing = false;
    std::vector<int> to_flush;
    int rounds = 0;
    int withdrawals = 4;  // that it still makes
    bool is_stopped = false;
    bool has_ended = false;
  };
  enum class Fault {
    kEndSeen,
    kEndUnseen,
    kShortCut,
    kLongCut,
    kEndBehindCut,
    kStop,
    kStopAndCut,
    kDisown,
    kFaults
  };
  struct Injection {
    Fault fault;
    int rank;
    TimePoint at;
    TimePoint until;
    bool has_begun = false;
    bool is_over = false;
  };

  int size() const { return static_cast<int>(ranks_.size()); }
  Member& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  int draw(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }
  bool is_over(int rank) const {
    const Member& member = ranks_[static_cast<std::size_t>(rank)];
    return member.has_ended || member.fabric->bootstrap().fences().is_cut_off();
  }

  MutexMembers members_of(int rank) {
    MutexMembers members{*at(rank).fabric, "fenced", {}, static_cast<std::size_t>(rank), 0};
    for (int peer = 0; peer < size(); ++peer)
      members.members.push_back({Rank(peer), at(peer).first_cell, nullptr});
    return members;
  }
  std::unique_ptr<MutexProtocol> make_manager(int rank) {
    MutexMembers members = members_of(rank);
    for (auto& each : members.members) each.link = at(rank).fabric->link(each.rank).value();
    return std::make_unique<MutexManager>(std::move(members));
  }
  std::unique_ptr<MutexProtocol> make_words(int rank) {
    MutexMembers members = members_of(rank);
    Member& member = at(rank);
    for (int peer = 0; peer < size(); ++peer) {
      member.slow_links.push_back(std::make_unique<SlowLink>(
          Rank(peer), rank, events_, at(peer).fabric->board(), words_, random_, false,
          [this, rank, peer] { return network_->is_revoked(Rank(rank), Rank(peer)); }));
      members.members[static_cast<std::size_t>(peer)].link = member.slow_links.back().get();
    }
    auto imported = member.slow_links.front()->import_region({}, words_.size() * 8).value();
    return MutexWords::create(std::move(members), std::move(imported)).value();
  }

  void plan_faults(int size) {
    const int count = 1 + draw(3);
    for (int i = 0; i < count; ++i) {
      const auto fault = static_cast<Fault>(draw(static_cast<int>(Fault::kFaults)));
      // Rank 0 owns the mutex; without it there is none.
      const int rank = fault == Fault::kShortCut ? draw(size) : 1 + draw(size - 1);
      const TimePoint begin = network_->now() + milliseconds(draw(3000));
      const bool is_long = fault != Fault::kShortCut;
      const TimePoint end =
          begin + (is_long ? milliseconds(3000 + draw(9000)) : milliseconds(draw(1500)));
      injections_.push_back({fault, rank, begin, end});
    }
  }

  void inject_faults() {
    const TimePoint now = network_->now();
    for (Injection& each : injections_) {
      if (!each.has_begun && now >= each.at) begin(each, now);
      if (each.has_begun && !each.is_over && now >= each.until) end(each, now);
    }
  }
  void begin(Injection& each, TimePoint now) {
    each.has_begun = true;
    Member& member = at(each.rank);
    switch (each.fault) {
      case Fault::kEndSeen:
      case Fault::kEndUnseen:
        member.has_ended = true;
        return job_.end(each.rank, each.fault == Fault::kEndSeen, now);
      case Fault::kEndBehindCut:
        job_.cut(each.rank, now);
        member.has_ended = true;
        return job_.end(each.rank, false, now);
      case Fault::kStopAndCut:
        member.is_stopped = true;
        return job_.cut(each.rank, now);
      case Fault::kStop:
        member.is_stopped = true;
        return;
      case Fault::kDisown:
        return job_.disown(each.rank);
      default:
        return job_.cut(each.rank, now);
    }
  }
  void end(Injection& each, TimePoint now) {
    each.is_over = true;
    at(each.rank).is_stopped = false;
    if (each.fault != Fault::kEndBehindCut) job_.heal(each.rank, now);
  }

  // What a rank does when it has the core.
  void act(int rank) {
    Member& member = at(rank);
    if (is_over(rank)) return;
    const Status status = member.mutex->progress();
    // The lanes of a rank that the owner has shut out fail, or say nothing.
    if (status.is_error()) return;
    const State state = member.mutex->state();
    if (state == State::kIdle && member.rounds < kRounds && draw(4) == 0) member.mutex->want();
    if (state == State::kWaiting && member.withdrawals > 0 && draw(256) == 0) {
      --member.withdrawals;
      member.mutex->release(false);
    }
    if (state == State::kHeld) hold(rank);
  }

  void hold(int rank) {
    Member& member = at(rank);
    if (member.generation == 0) return enter(rank);
    if (member.writes_left > 0) return write(rank);
    if (!member.to_flush.empty()) return flush(member);
    for (const Completion& each : member.completions) {
      if (!each.is_done()) return;
    }
    member.completions.clear();
    member.generation = 0;
    if (holder_ == rank) holder_ = -1;
    ++member.rounds;
    member.mutex->release(true);
  }

  // Whether no other rank lets anything of this one in.
  bool is_shut_out(int rank) const {
    for (int peer = 0; peer < size(); ++peer) {
      const bool counts = peer != rank && job_.is_present(peer);
      if (counts && !network_->is_revoked(Rank(rank), Rank(peer))) return false;
    }
    return true;
  }

  void enter(int rank) {
    Member& member = at(rank);
    if (!job_.is_present(rank) && is_shut_out(rank)) {
      // It had the mutex and was stopped. Others have had it since, and none of its bytes may land.
      label(member, kGenerations - ++ghosts_);
      return;
    }
    const bool is_after_death = member.mutex->outcome() == LockOutcome::kLockedAfterDeath;
    takeovers_ += is_after_death ? 1 : 0;
    if (holder_ != -1) {
      ASSERT_FALSE(job_.is_present(holder_)) << "rank " << rank << " got it as well";
      ASSERT_TRUE(is_after_death) << "rank " << rank << " was not told";
    }
    holder_ = rank;
    label(member, ++generation_);
    at_grant_.clear();
    for (Member& each : ranks_)
      at_grant_.emplace_back(each.memory->data(), each.memory->data() + kSlot);
  }

  void label(Member& member, int generation) {
    ASSERT_LT(generation_, kGenerations - ghosts_ - 1);
    member.generation = generation;
    std::memset(member.source->data() + kSlot * static_cast<std::size_t>(generation), generation,
                kSlot);
    member.writes_left = 1 + draw(8);
  }

  void write(int rank) {
    Member& member = at(rank);
    const int peer = draw(size());
    auto link = member.fabric->link(Rank(peer));
    if (peer == rank || !link.is_ok()) return;
    const std::size_t offset = kSlot * static_cast<std::size_t>(member.generation);
    Completion& completion = member.completions.emplace_back();
    const Status status = (*link)->data().put(
        member.source->slice(offset, kSlot).value(),
        member.targets[static_cast<std::size_t>(peer)]->slice(0, kSlot).value(), &completion);
    if (!status.is_ok()) member.completions.pop_back();
    if (status.is_busy()) return;
    --member.writes_left;
    if (member.writes_left > 0) return;
    for (int each = 0; each < size(); ++each) {
      if (each != rank) member.to_flush.push_back(each);
    }
  }

  void flush(Member& member) {
    auto link = member.fabric->link(Rank(member.to_flush.back()));
    Completion& completion = member.completions.emplace_back();
    const Status status = link.is_ok()
                              ? (*link)->data().flush(transport::Visibility::kRemote, &completion)
                              : std::move(link).status();
    if (!status.is_ok()) member.completions.pop_back();
    if (!status.is_busy()) member.to_flush.pop_back();
  }

  // Since the last grant, only the holder's bytes may have changed anything.
  void check_memory() {
    if (at_grant_.empty()) return;
    for (int rank = 0; rank < size(); ++rank) {
      if (!job_.is_present(rank)) continue;
      const std::byte* const now = at(rank).memory->data();
      const auto& then = at_grant_[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < kSlot; ++i) {
        ASSERT_TRUE(now[i] == then[i] || std::to_integer<int>(now[i]) == generation_)
            << "byte " << i << " at rank " << rank << " is of lock " << std::to_integer<int>(now[i])
            << ", but lock " << generation_ << " is held by rank " << holder_;
      }
    }
  }

  bool is_finished() {
    for (const Injection& each : injections_) {
      if (!each.has_begun || (!each.is_over && at(each.rank).is_stopped)) return false;
    }
    for (int rank = 0; rank < size(); ++rank) {
      if (!is_over(rank) && job_.is_present(rank) && at(rank).rounds < kRounds) return false;
    }
    return true;
  }

  std::mt19937_64 random_;
  std::unique_ptr<transport::sim::Network> network_;
  PendingEvents events_;
  UnreliableJob job_;
  Config config_;
  std::vector<std::uint64_t> words_;
  std::vector<Member> ranks_;
  std::vector<Injection> injections_;
  std::vector<std::vector<std::byte>> at_grant_;  // the memory of each rank at the last grant
  int holder_ = -1;
  int generation_ = 0;
  int takeovers_ = 0;
  int ghosts_ = 0;  // ranks that entered after they were shut out
};

class FencingTest : public ::testing::TestWithParam<std::uint64_t> {
 public:
  static constexpr std::uint64_t kUsualSeeds = 1000;

  static void TearDownTestSuite() {
    if (!are_representative(worlds_, kUsualSeeds)) return;
    // What the test is about has to happen: deaths of holders, and holders that wake up too late.
    EXPECT_GT(takeovers_, worlds_ / 10);
    EXPECT_GT(ghosts_, worlds_ / 200);
  }

 protected:
  static void note(const World& world) {
    ++worlds_;
    takeovers_ += static_cast<std::uint64_t>(world.takeovers());
    ghosts_ += static_cast<std::uint64_t>(world.ghosts());
  }

 private:
  static inline std::uint64_t worlds_ = 0;
  static inline std::uint64_t takeovers_ = 0;
  static inline std::uint64_t ghosts_ = 0;
};

TEST_P(FencingTest, NoWriteOfAFormerHolderLands) {
  const std::uint64_t seed = GetParam();
  World world(seed, 3 + static_cast<int>(seed % 3));
  long turns = 0;
  while (turns < kMostTurns && world.turn() && !HasFatalFailure()) ++turns;
  ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << "\n" << world.describe();
  EXPECT_LT(turns, kMostTurns) << "seed " << seed << ": nothing moves any more\n"
                               << world.describe();
  note(world);
}

INSTANTIATE_TEST_SUITE_P(Seeds, FencingTest,
                         ::testing::Range<std::uint64_t>(1, 1 + seeds(FencingTest::kUsualSeeds)),
                         [](const auto& seed) { return std::to_string(seed.param); });

}  // namespace
}  // namespace dunlin::testing
