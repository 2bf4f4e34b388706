// RingStage in every interleaving: all orders in which messages can arrive (in order on each
// directed edge), timeouts at any moment or never, late ranks at every departure. Beside the counts
// that the stages see, each message carries the set of its contributions.
#include <gtest/gtest.h>

#include <bit>
#include <compare>
#include <set>
#include <string>
#include <vector>

#include "collectives/straggler/stage.h"
#include "collectives/straggler/tag.h"

namespace dunlin::testing {
namespace {

using collective::RingStage;
using collective::RingTag;

using Contributions = std::uint32_t;  // a bit per position

struct Message {
  bool is_notice = false;
  std::uint32_t count = 0;  // as the receiver sees it
  Contributions payload = 0;
  auto operator<=>(const Message&) const = default;
};

struct Rank {
  RingStage stage;
  Contributions accumulator = 0;
  Contributions held = 0;
  std::vector<Message> to_next;
  std::vector<Message> to_past;
  auto operator<=>(const Rank&) const = default;
};

// The path of one chunk, with the ranks in the order of their positions.
using State = std::vector<Rank>;

State begin(std::uint32_t size) {
  State state;
  for (std::uint32_t position = 0; position < size; ++position)
    state.push_back({RingStage(position, size), Contributions{1} << position, 0, {}, {}});
  return state;
}

// Goes through all reachable states, each once.
class Explorer {
 public:
  explicit Explorer(std::uint32_t size) : size_(size), all_((Contributions{1} << size) - 1) {}

  // The first error, or an empty text.
  std::string explore() {
    visit(begin(size_));
    while (!open_.empty() && error_.empty()) {
      const State state = *open_.back();
      open_.pop_back();
      expand(state);
    }
    return error_;
  }
  std::size_t states() const { return seen_.size(); }
  std::size_t ends() const { return ends_; }
  std::size_t late_notices() const { return late_notices_; }

 private:
  void fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }

  void visit(State state) {
    const auto [at, is_new] = seen_.insert(std::move(state));
    if (is_new) open_.push_back(&*at);
  }

  void expand(const State& state) {
    bool can_move = false;
    for (std::size_t at = 0; at < size_; ++at) {
      const Rank& rank = state[at];
      if (!rank.to_next.empty()) can_move = true, deliver(state, at, at + 1, &Rank::to_next);
      if (!rank.to_past.empty()) can_move = true, deliver(state, at, at + 2, &Rank::to_past);
      // A full queue may force a fold at any time.
      if (rank.held != 0) can_move = can_move || rank.stage.should_fold(), fold(state, at);
      if (rank.stage.should_depart()) {
        can_move = true;
        for (const bool is_late : {false, true}) choose(state, at, is_late);
      }
      if (rank.stage.route() != RingStage::Route::kNone) can_move = true, send(state, at);
      // A timeout at any moment. Nothing may depend on one.
      State expired = state;
      expired[at].stage.release();
      visit(std::move(expired));
    }
    if (!can_move) check_end(state);
  }

  void deliver(const State& state, std::size_t from, std::size_t to,
               std::vector<Message> Rank::*edge) {
    if (to >= size_) return fail("something is sent past the owner");
    State after = state;
    auto& queue = after[from].*edge;
    if (queue.size() > size_ + 1) return fail("messages without end");
    const Message message = queue.front();
    queue.erase(queue.begin());
    Rank& receiver = after[to];
    if (message.is_notice) {
      if (receiver.stage.has_sent()) ++late_notices_;
      receiver.stage.release();
    } else {
      if (static_cast<int>(message.count) != std::popcount(message.payload))
        fail("a message carries other contributions than it says");
      if (!receiver.stage.arrive(message.count)) fail("more contributions than there are");
      if ((receiver.held & message.payload) != 0) fail("a contribution came twice");
      receiver.held |= message.payload;
    }
    visit(std::move(after));
  }

  void fold(const State& state, std::size_t at) {
    State after = state;
    Rank& rank = after[at];
    if ((rank.accumulator & rank.held) != 0) fail("a contribution is counted twice");
    rank.stage.fold(static_cast<std::uint32_t>(std::popcount(rank.held)));
    rank.accumulator |= rank.held;
    rank.held = 0;
    visit(std::move(after));
  }

  void choose(const State& state, std::size_t at, bool is_late) {
    State after = state;
    const auto departure = after[at].stage.choose(is_late);
    if (departure.is_notice_due) after[at].to_next.push_back({true, 0, 0});
    visit(std::move(after));
  }

  void send(const State& state, std::size_t at) {
    State after = state;
    Rank& rank = after[at];
    auto& edge = rank.stage.route() == RingStage::Route::kNext ? rank.to_next : rank.to_past;
    const std::uint32_t count = rank.stage.take();
    edge.push_back({false, count, rank.accumulator});
    rank.accumulator = 0;
    visit(std::move(after));
  }

  // Nothing moves any more without a timeout, so everything has to be done.
  void check_end(const State& state) {
    ++ends_;
    for (const Rank& rank : state) {
      if (rank.held != 0) fail("a message is held for ever");
      if (!rank.stage.is_owner() && rank.accumulator != 0) fail("a contribution is never sent");
    }
    if (!state.back().stage.is_summed()) fail("the owner waits for ever");
    if (state.back().accumulator != all_) fail("the owner's sum lacks a contribution");
  }

  std::uint32_t size_;
  Contributions all_;
  std::set<State> seen_;
  std::vector<const State*> open_;
  std::string error_;
  std::size_t ends_ = 0;
  std::size_t late_notices_ = 0;
};

class RingStageTest : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(RingStageTest, EveryInterleavingCountsEachContributionOnce) {
  Explorer explorer(GetParam());
  EXPECT_EQ(explorer.explore(), "");
  EXPECT_GE(explorer.ends(), 1u);
  // The states include the race of a rank that has sent its part alone and is then told not to
  // wait.
  EXPECT_EQ(explorer.late_notices() > 0, GetParam() > 2);
  RecordProperty("states", static_cast<int>(explorer.states()));
  RecordProperty("ends", static_cast<int>(explorer.ends()));
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingStageTest, ::testing::Range(1u, 6u),
                         [](const auto& ranks) { return std::to_string(ranks.param); });

TEST(RingStage, TakesNoMoreContributionsThanThereAre) {
  RingStage stage(2, 4);
  EXPECT_FALSE(stage.arrive(0));
  EXPECT_FALSE(stage.arrive(3));
  EXPECT_TRUE(stage.arrive(1));
  EXPECT_FALSE(stage.arrive(2));
  EXPECT_TRUE(stage.arrive(1));
  EXPECT_FALSE(stage.arrive(1));
}

// Without a late rank it is the plain ring: one message per rank, with all contributions so far.
TEST(RingStage, IsAPlainRingIfNoRankIsLate) {
  RingStage stage(2, 4);
  EXPECT_FALSE(stage.should_depart());
  EXPECT_TRUE(stage.arrive(2));
  EXPECT_TRUE(stage.should_fold());
  stage.fold(2);
  EXPECT_TRUE(stage.should_depart());
  EXPECT_EQ(stage.choose(false).route, RingStage::Route::kNext);
  EXPECT_EQ(stage.take(), 3u);
  EXPECT_FALSE(stage.should_depart());
}

// Position 2 of 4 has only the owner behind it, so there is no rank to send past.
TEST(RingStage, NoRankSendsPastTheOwner) {
  RingStage stage(2, 4);
  EXPECT_TRUE(stage.arrive(2));
  stage.fold(2);
  const auto departure = stage.choose(true);
  EXPECT_EQ(departure.route, RingStage::Route::kNext);
  EXPECT_FALSE(departure.is_notice_due);
}

TEST(RingTag, SurvivesItsEncoding) {
  const RingTag tag{RingTag::Kind::kResult, 16383, 0xfedcba98, 65535};
  const RingTag again = RingTag::decode(tag.encode());
  EXPECT_EQ(again.kind, tag.kind);
  EXPECT_EQ(again.step, tag.step);
  EXPECT_EQ(again.flow, tag.flow);
  EXPECT_EQ(again.contributions, tag.contributions);
  EXPECT_TRUE(again.is_known());
}

TEST(RingTag, OfNoKindIsNotKnown) {
  const RingTag tag{RingTag::Kind::kResult, 1, 2, 3};
  EXPECT_FALSE(RingTag::decode(tag.encode() | std::uint64_t{3} << 62).is_known());
}

}  // namespace
}  // namespace dunlin::testing
