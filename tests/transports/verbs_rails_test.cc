// Rails without devices: which ports a process chooses, how puts are cut, and that a put is
// reported only when all its stripes, and all puts before it, have landed.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "tests/support/seeds.h"
#include "transports/verbs/device/device.h"
#include "transports/verbs/rails/stripes.h"

namespace dunlin::transport::verbs {
namespace {

TEST(StripeTest, StripesAreThePut) {
  for (const std::uint64_t size :
       {1ul, 4095ul, 4096ul, 4097ul, 32769ul, 65536ul, 1048577ul, (1ul << 40) + 12345}) {
    for (std::size_t rails = 1; rails <= kMostPorts * kMostQueuePairs; ++rails) {
      std::uint64_t end = 0;
      for (std::size_t rail = 0; rail < rails; ++rail) {
        const Stripe stripe = stripe_of(size, rails, rail);
        EXPECT_EQ(stripe.offset, end) << size << " over " << rails << ", rail " << rail;
        if (stripe.size != 0) {
          EXPECT_EQ(stripe.offset % kStripeStep, 0u);
        }
        EXPECT_LE(stripe.size, stripe_of(size, rails, 0).size);
        end += stripe.size;
      }
      EXPECT_EQ(end, size) << rails;
      // No rail has more than its share, up to one step.
      EXPECT_LT(stripe_of(size, rails, 0).size, size / rails + 1 + kStripeStep);
    }
  }
}

TEST(StripeTest, OfEvenSizesAllRailsHaveTheSame) {
  for (std::size_t rail = 0; rail < 4; ++rail)
    EXPECT_EQ(stripe_of(1 << 20, 4, rail).size, 1u << 18);
  EXPECT_EQ(stripe_of(33 << 10, 2, 0).size, 20u << 10);
  EXPECT_EQ(stripe_of(33 << 10, 2, 1).size, 13u << 10);
}

// Carries pieces one after the other, as a queue pair does.
class FakeRail final : public Rail {
 public:
  explicit FakeRail(std::size_t room) : room_(room) {}

  bool post(const StripedPut& put, const Stripe& stripe, Completion& landed) override {
    if (pieces_.size() == room_) return false;
    pieces_.push_back({put.position, stripe.size, &landed});
    return true;
  }
  struct Piece {
    std::uint64_t position;
    std::uint64_t size;
    Completion* landed;
  };
  std::deque<Piece>& pieces() { return pieces_; }

 private:
  const std::size_t room_;
  std::deque<Piece> pieces_;
};

// A lane over several rails, which act in an order that depends on the seed.
class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed), depth_(below(2) == 0 ? 2 : 1 + below(9)) {
    const std::size_t rails = 2 + below(4);
    std::vector<Rail*> all;
    for (std::size_t i = 0; i < rails; ++i) {
      rails_.push_back(std::make_unique<FakeRail>(1 + below(3)));
      all.push_back(rails_.back().get());
    }
    stripes_ = std::make_unique<Stripes>(all, depth_);
  }

  void run(std::uint64_t puts) {
    for (int idle = 0; told_ != puts;) {
      ASSERT_LT(++idle, 10'000) << "nothing goes on at " << told_ << " of " << puts;
      const std::uint64_t before = told_;
      if (begun_ != puts && begun_ - told_ < depth_ && below(2) == 0) begin();
      if (below(3) != 0) land(*rails_[below(rails_.size())]);
      if (below(2) == 0) {
        ASSERT_NO_FATAL_FAILURE(take());
      }
      if (told_ != before) idle = 0;
    }
    EXPECT_TRUE(stripes_->is_empty());
    EXPECT_FALSE(stripes_->next_outcome()) << "more than there were";
  }

 private:
  struct Put {
    bool notifies = false;
    std::uint64_t left = 0;  // bytes that haven't landed
    bool is_refused = false;
  };

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

  void begin() {
    StripedPut put;
    put.position = begun_++;
    put.size = 1 + below(12 * kStripeStep);
    put.notifies = below(2) == 0;
    puts_.push_back({put.notifies, put.size});
    stripes_->add(put);
  }

  void land(FakeRail& rail) {
    if (rail.pieces().empty()) return;
    const FakeRail::Piece piece = rail.pieces().front();
    rail.pieces().pop_front();
    Put& put = puts_[piece.position];
    ASSERT_GE(put.left, piece.size) << "bytes are carried twice";
    put.left -= piece.size;
    const bool is_refused = below(20) == 0;
    put.is_refused |= is_refused;
    piece.landed->fire(is_refused ? Status(Code::kNotFound, "refused") : Status::ok());
  }

  // The rule: a put is reported only when all its pieces, and those of all puts before it, are
  // done.
  void take() {
    while (const auto outcome = stripes_->next_outcome()) {
      ASSERT_EQ(outcome->position, told_);
      const Put& put = puts_[told_++];
      ASSERT_EQ(put.left, 0u) << "put " << outcome->position << " is told of too early";
      ASSERT_EQ(outcome->notifies, put.notifies);
      ASSERT_EQ(outcome->status.code(), put.is_refused ? Code::kNotFound : Code::kOk);
    }
  }

  std::mt19937_64 random_;
  const std::uint64_t depth_;
  std::vector<std::unique_ptr<FakeRail>> rails_;
  std::unique_ptr<Stripes> stripes_;
  std::vector<Put> puts_;
  std::uint64_t begun_ = 0;
  std::uint64_t told_ = 0;
};

TEST(StripesTest, APutIsToldOfWhenAllRailsHaveCarriedItAndAllBefore) {
  for (std::uint64_t seed = 1; seed <= testing::seeds(2000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World(seed).run(60);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(StripesTest, OneRailsEndIsNotEnough) {
  FakeRail one(8);
  FakeRail other(8);
  Stripes stripes({&one, &other}, 8);
  StripedPut put;
  put.size = 64 << 10;
  put.notifies = true;
  stripes.add(put);
  put.position = 1;
  stripes.add(put);
  ASSERT_EQ(one.pieces().size(), 2u) << "the second put does not wait for the first";
  for (const auto& piece : one.pieces()) piece.landed->fire(Status::ok());
  EXPECT_FALSE(stripes.next_outcome());
  other.pieces()[1].landed->fire(Status::ok());
  EXPECT_FALSE(stripes.next_outcome()) << "the first put is in progress";
  other.pieces()[0].landed->fire(Status::ok());
  EXPECT_EQ(stripes.next_outcome()->position, 0u);
  EXPECT_EQ(stripes.next_outcome()->position, 1u);
}

DeviceAddress near(const std::string& device, int port = 1) {
  return {device, port, 1, Proximity::kNode, "10.0.0.1"};
}

std::string names(const std::vector<DeviceAddress>& chosen) {
  std::string text;
  for (const auto& each : chosen) text += each.device + ":" + std::to_string(each.port) + " ";
  return text;
}

TEST(ChoiceTest, RanksOfAHostTakeTurns) {
  std::vector<DeviceAddress> all{near("a"), near("b"), near("c"), near("d")};
  EXPECT_EQ(names(choose(all, "", 0, 1)), "a:1 ");
  EXPECT_EQ(names(choose(all, "", 5, 1)), "b:1 ");
  EXPECT_EQ(names(choose(all, "", 0, 2)), "a:1 c:1 ");
  EXPECT_EQ(names(choose(all, "", 3, 2)), "b:1 d:1 ");
  EXPECT_EQ(names(choose(all, "", 3, 4)), "a:1 b:1 c:1 d:1 ") << "in the same order everywhere";
  EXPECT_EQ(names(choose(all, "", 0, 8)), "a:1 b:1 c:1 d:1 ") << "not more than there are";
  EXPECT_EQ(names(choose(all, "", 7, 3)), "a:1 b:1 c:1 ");
}

TEST(ChoiceTest, NearOnesComeFirstUnlessTheyAreNamed) {
  std::vector<DeviceAddress> all{near("a"), near("b"), near("c")};
  all[1].proximity = all[2].proximity = Proximity::kSystem;
  EXPECT_EQ(names(choose(all, "", 1, 1)), "a:1 ");
  EXPECT_EQ(names(choose(all, "", 1, 2)), "a:1 b:1 ");
  EXPECT_EQ(names(choose(all, "a,b,c", 1, 1)), "b:1 ")
      << "all devices that are named count as equally near";
  EXPECT_EQ(names(choose(all, "a,b,c", 1, 3)), "a:1 b:1 c:1 ");
}

TEST(ChoiceTest, OnlyThoseBehindTheGpusSwitchTakeTurns) {
  std::vector<DeviceAddress> all{near("a"), near("b"), near("c"), near("d")};
  all[0].proximity = all[1].proximity = Proximity::kSwitch;
  all[2].proximity = Proximity::kHostBridge;
  EXPECT_EQ(names(choose(all, "", 0, 1)), "a:1 ");
  EXPECT_EQ(names(choose(all, "", 3, 1)), "b:1 ");
  EXPECT_EQ(names(choose(all, "", 1, 2)), "a:1 b:1 ");
}

TEST(ChoiceTest, AGpuThatIsNotThereIsNotNear) {
  Config config = Config::parse(Environment()).value();
  EXPECT_EQ(find_vicinity(config).value(), Vicinity()) << "no GPU is current here";
  config.verbs_near_gpu = 1000;
  const Status status = find_vicinity(config).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("DUNLIN_VERBS_NEAR_GPU"), std::string::npos);
}

TEST(ChoiceTest, AsManyRailsAsAreNamed) {
  Config config = Config::parse(Environment()).value();
  EXPECT_EQ(rails_wanted(config), 1u);
  config.verbs_device = "mlx5_0";
  EXPECT_EQ(rails_wanted(config), 1u);
  config.verbs_device = "mlx5_0,mlx5_1:2";
  EXPECT_EQ(rails_wanted(config), 2u);
  config.verbs_rails = 1;
  EXPECT_EQ(rails_wanted(config), 1u);
}

}  // namespace
}  // namespace dunlin::transport::verbs
