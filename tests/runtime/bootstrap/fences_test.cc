// Fences around ranks that are gone: the coordinator's book, and the rank's side with its guards.
#include "runtime/bootstrap/fences.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "runtime/bootstrap/fence_book.h"

namespace dunlin::bootstrap {
namespace {

constexpr Rank kGone{3};

class FenceBookTest : public ::testing::Test {
 protected:
  Status ask(int from, std::uint64_t number, std::vector<Rank> owners) {
    return book.ask(Rank(from), {.type = MessageType::kFence,
                                 .subject = kGone,
                                 .number = number,
                                 .ranks = std::move(owners)});
  }
  Status confirm(int from) {
    return book.confirm(Rank(from), {.type = MessageType::kRevoked, .subject = kGone});
  }
  void lose(Rank rank) {
    gone.insert(rank);
    book.note_gone();
  }
  // The messages since the last call: the receiver, and 0 for kRevoke or the number of the fence.
  std::vector<std::pair<int, std::uint64_t>> take() { return std::exchange(sent, {}); }
  using Sent = std::vector<std::pair<int, std::uint64_t>>;

  std::set<Rank> gone;
  Sent sent;
  FenceBook book{5,
                 [this](Rank to, const Message& message) {
                   EXPECT_EQ(message.subject, kGone);
                   const bool is_revoke = message.type == MessageType::kRevoke;
                   sent.emplace_back(to.value(), is_revoke ? 0 : message.number);
                 },
                 [this](Rank rank) { return !gone.contains(rank); }};
};

TEST_F(FenceBookTest, IsDoneWhenAllOwnersHaveConfirmed) {
  lose(kGone);
  ASSERT_TRUE(ask(0, 7, {Rank(0), Rank(1), kGone}).is_ok());
  EXPECT_EQ(take(), (Sent{{0, 0}, {1, 0}}));
  ASSERT_TRUE(confirm(1).is_ok());
  EXPECT_EQ(take(), Sent{});
  ASSERT_TRUE(confirm(0).is_ok());
  EXPECT_EQ(take(), (Sent{{0, 7}}));
}

TEST_F(FenceBookTest, ARankThatOnlyTheAskerCountsAsDeadIsNotFenced) {
  ASSERT_TRUE(ask(0, 7, {Rank(0)}).is_ok());
  EXPECT_EQ(take(), Sent{});
  lose(kGone);
  EXPECT_EQ(take(), (Sent{{0, 0}}));
}

TEST_F(FenceBookTest, OwnersAreAskedOnce) {
  lose(kGone);
  ASSERT_TRUE(ask(0, 7, {Rank(0), Rank(1)}).is_ok());
  ASSERT_TRUE(ask(1, 9, {Rank(1), Rank(2)}).is_ok());
  EXPECT_EQ(take(), (Sent{{0, 0}, {1, 0}, {2, 0}}));
  ASSERT_TRUE(confirm(1).is_ok());
  ASSERT_TRUE(confirm(2).is_ok());
  EXPECT_EQ(take(), (Sent{{1, 9}}));
  ASSERT_TRUE(ask(4, 1, {Rank(1)}).is_ok());
  EXPECT_EQ(take(), (Sent{{4, 1}}));
}

TEST_F(FenceBookTest, OwnersThatDieConfirmNothing) {
  lose(kGone);
  ASSERT_TRUE(ask(0, 7, {Rank(1), Rank(2)}).is_ok());
  ASSERT_TRUE(confirm(1).is_ok());
  take();
  lose(Rank(2));
  EXPECT_EQ(take(), (Sent{{0, 7}}));
}

TEST_F(FenceBookTest, ForgetsWhatRanksThatAreGoneHaveAskedFor) {
  ASSERT_TRUE(ask(0, 7, {Rank(1)}).is_ok());
  lose(Rank(0));
  lose(kGone);
  EXPECT_EQ(take(), Sent{}) << "nobody waits for the fence";
}

// A fence around a rank that lives stays open, and a member could ask for more without end.
TEST_F(FenceBookTest, HoldsNoMoreThanARankCanWaitFor) {
  const std::vector<Rank> owners(65536, Rank(1));
  Status status;
  int asked = 0;
  for (; status.is_ok() && asked < 100; ++asked)
    status = ask(0, static_cast<std::uint64_t>(asked), owners);
  EXPECT_EQ(status.code(), Code::kCorrupted);
  EXPECT_EQ(asked, 16);
  EXPECT_TRUE(ask(2, 7, {Rank(1)}).is_ok()) << "the others still can";
}

TEST_F(FenceBookTest, RefusesWhatCannotBe) {
  EXPECT_EQ(ask(0, 1, {Rank(5)}).code(), Code::kCorrupted);
  EXPECT_EQ(confirm(1).code(), Code::kCorrupted);
  EXPECT_EQ(book.ask(Rank(0), {.type = MessageType::kFence, .subject = Rank(-1)}).code(),
            Code::kCorrupted);
}

class FencesTest : public ::testing::Test {
 protected:
  std::vector<Rank> confirmed;
  std::vector<std::uint64_t> asked;
  int wakes = 0;
  Fences fences{
      {.ask = [this](std::uint64_t number, Rank, std::vector<Rank>) { asked.push_back(number); },
       .confirm = [this](Rank gone) { confirmed.push_back(gone); }}};
};

TEST_F(FencesTest, WithoutAGuardNothingCanLand) {
  fences.on_revoke(kGone);
  EXPECT_EQ(confirmed, std::vector<Rank>{kGone});
}

TEST_F(FencesTest, EveryGuardConfirms) {
  const int first = fences.add_guard([this] { ++wakes; });
  const int second = fences.add_guard([this] { ++wakes; });
  EXPECT_FALSE(fences.has_due());
  fences.on_revoke(kGone);
  EXPECT_EQ(wakes, 2);
  EXPECT_TRUE(fences.has_due());
  EXPECT_EQ(fences.due(first), std::vector<Rank>{kGone});
  fences.confirm(first, kGone);
  EXPECT_TRUE(fences.due(first).empty());
  EXPECT_TRUE(confirmed.empty());
  fences.remove_guard(second);
  EXPECT_EQ(confirmed, std::vector<Rank>{kGone});
  EXPECT_FALSE(fences.has_due());
}

TEST_F(FencesTest, EachFenceIsDoneByItself) {
  const std::vector<Rank> owners{Rank(0)};
  const auto first = fences.ask(kGone, owners);
  const auto second = fences.ask(kGone, owners);
  EXPECT_EQ(asked, (std::vector<std::uint64_t>{first, second}));
  fences.on_fenced(second);
  EXPECT_FALSE(fences.is_done(first));
  EXPECT_TRUE(fences.is_done(second));
}

TEST_F(FencesTest, ARankThatIsCutOffStaysSo) {
  EXPECT_TRUE(fences.check().is_ok());
  fences.cut_off({Code::kUnavailable, "out of contact"});
  fences.cut_off({Code::kClosed, "later"});
  EXPECT_TRUE(fences.is_cut_off());
  EXPECT_EQ(fences.check().message(), "out of contact");
}

}  // namespace
}  // namespace dunlin::bootstrap
