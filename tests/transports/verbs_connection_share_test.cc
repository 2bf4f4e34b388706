// Which connections are given up when there are too many, without a device.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "transports/verbs/connect/connection_share.h"

namespace dunlin::transport::verbs {
namespace {

class End {
 public:
  enum class Answer { kLeaves, kLeavesLater, kStays };

  explicit End(ConnectionShare<End>& share) : share_(share) {
    use();
    share_.add(*this);
  }
  void use() { last_use_ = share_.next_use(); }
  void answer(Answer answer) { answer_ = answer; }
  int asked() const { return asked_; }

  bool begin_to_leave() {
    ++asked_;
    if (answer_ == Answer::kLeaves) share_.remove(*this);
    is_leaving_ = answer_ == Answer::kLeavesLater;
    return answer_ != Answer::kStays;
  }
  bool is_leaving() const { return is_leaving_; }
  std::uint64_t last_use() const { return last_use_; }

 private:
  ConnectionShare<End>& share_;
  Answer answer_ = Answer::kLeaves;
  bool is_leaving_ = false;
  int asked_ = 0;
  std::uint64_t last_use_ = 0;
};

class ConnectionShareTest : public ::testing::Test {
 protected:
  ConnectionShareTest() {
    for (int i = 0; i < 4; ++i) ends_.push_back(std::make_unique<End>(share_));
  }
  End& end(std::size_t index) { return *ends_[index]; }
  // How often each was asked to leave.
  std::vector<int> asked() const {
    std::vector<int> counts;
    for (const auto& end : ends_) counts.push_back(end->asked());
    return counts;
  }

  TimePoint now_{};
  ConnectionShare<End> share_{4};
  std::vector<std::unique_ptr<End>> ends_;
};

TEST_F(ConnectionShareTest, NobodyLeavesWhileThereIsRoom) {
  EXPECT_FALSE(share_.has_room());
  share_.make_room(0, now_);
  EXPECT_EQ(asked(), (std::vector{0, 0, 0, 0}));
  share_.remove(end(2));
  EXPECT_TRUE(share_.has_room());
  share_.make_room(1, now_);
  EXPECT_EQ(asked(), (std::vector{0, 0, 0, 0}));
}

TEST_F(ConnectionShareTest, TheLeastRecentlyUsedLeavesFirst) {
  end(0).use();
  end(2).use();
  share_.make_room(1, now_);
  EXPECT_EQ(asked(), (std::vector{0, 1, 0, 0}));
  EXPECT_TRUE(share_.has_room());
  share_.make_room(2, now_);
  EXPECT_EQ(asked(), (std::vector{0, 1, 0, 1}));
  share_.make_room(4, now_);
  EXPECT_EQ(asked(), (std::vector{1, 1, 1, 1}));
}

TEST_F(ConnectionShareTest, WhoCannotLeaveIsPassedOver) {
  end(0).answer(End::Answer::kStays);
  share_.make_room(1, now_);
  EXPECT_EQ(asked(), (std::vector{1, 1, 0, 0}));
  EXPECT_EQ(share_.ends().size(), 3u);
}

TEST_F(ConnectionShareTest, NoMoreAreAskedThanHaveToLeave) {
  end(0).answer(End::Answer::kLeavesLater);
  for (int i = 0; i < 3; ++i) share_.make_room(1, now_);
  EXPECT_EQ(asked(), (std::vector{1, 0, 0, 0})) << "it will leave";
  share_.make_room(2, now_);
  EXPECT_EQ(asked(), (std::vector{1, 1, 0, 0}));
}

TEST_F(ConnectionShareTest, WhoStaysForLongIsBusy) {
  end(0).answer(End::Answer::kLeavesLater);
  share_.make_room(1, now_);
  now_ += kLeaveTimeout;
  share_.make_room(1, now_);
  EXPECT_EQ(asked(), (std::vector{1, 0, 0, 0}));
  now_ += std::chrono::milliseconds(1);
  share_.make_room(1, now_);
  EXPECT_EQ(asked(), (std::vector{1, 1, 0, 0})) << "an idle one leaves in its place";
  EXPECT_TRUE(share_.has_room());
}

TEST_F(ConnectionShareTest, OneIsAskedWhateverTheSize) {
  share_.remove(end(3));
  end(0).answer(End::Answer::kStays);
  end(1).answer(End::Answer::kLeavesLater);
  for (int i = 0; i < 2; ++i) share_.ask_one(now_);
  EXPECT_EQ(asked(), (std::vector{1, 1, 0, 0}));
}

TEST_F(ConnectionShareTest, MoreThanThereShouldBeLeaveAgain) {
  for (int i = 0; i < 3; ++i) ends_.push_back(std::make_unique<End>(share_));
  EXPECT_EQ(share_.ends().size(), 7u);
  share_.make_room(0, now_);
  EXPECT_EQ(share_.ends().size(), 4u);
  EXPECT_EQ(asked(), (std::vector{1, 1, 1, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace dunlin::transport::verbs
