#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "collectives/waiting/expiry.h"
#include "runtime/bootstrap/bootstrap.h"
#include "transports/fabric.h"
#include "transports/sim/network.h"

namespace dunlin::collective {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 8;

// Wraps a bootstrap and delays its lookups and gathers.
class SlowBootstrap final : public Bootstrap {
 public:
  // Advances `clock`, which must outlive this object.
  SlowBootstrap(std::unique_ptr<Bootstrap> whole, ManualClock& clock)
      : whole_(std::move(whole)), clock_(clock) {}

  void answer_after(Duration delay) { delay_ = delay; }

  const JobInfo& job() const override { return whole_->job(); }
  PeerTable& peers() override { return whole_->peers(); }
  Mail& mail() override { return whole_->mail(); }
  Fences& fences() override { return whole_->fences(); }
  const JobKey& key() const override { return whole_->key(); }
  Status post(std::string_view key, std::span<const std::byte> value) override {
    return whole_->post(key, value);
  }
  Status publish(std::string_view key, std::span<const std::byte> value) override {
    return whole_->publish(key, value);
  }
  Result<Bytes> lookup_from(Rank publisher, std::string_view key, Duration timeout) override {
    clock_.advance(std::min(delay_, timeout));
    if (timeout < delay_) return Status(Code::kDeadlineExceeded, "no answer yet");
    return whole_->lookup_from(publisher, key, Duration::zero());
  }
  Result<Bytes> gather(std::string_view name, std::span<const Rank> group,
                       std::span<const std::byte> record, Duration timeout) override {
    clock_.advance(std::min(delay_, timeout));
    if (timeout < delay_) return Status(Code::kDeadlineExceeded, "no answer yet");
    return whole_->gather(name, group, record, Duration::zero());
  }
  Status contribute(std::string_view name, std::span<const Rank> group,
                    std::span<const std::byte> record) override {
    return whole_->contribute(name, group, record);
  }
  Status barrier(std::string_view name, Duration timeout) override {
    return whole_->barrier(name, timeout);
  }
  int add_chore(std::function<void()> chore) override {
    return whole_->add_chore(std::move(chore));
  }
  void remove_chore(int chore) override { whole_->remove_chore(chore); }
  Result<Membership> reform(Duration timeout) override { return whole_->reform(timeout); }
  Membership membership() const override { return whole_->membership(); }
  void leave() noexcept override { whole_->leave(); }

 private:
  std::unique_ptr<Bootstrap> whole_;
  ManualClock& clock_;
  Duration delay_{};
};

// Each answer comes in time, but all of them together do not.
TEST(Connecting, TakesNoLongerThanItsTimeoutForAllItsQuestions) {
  transport::sim::Options options;
  options.ranks = kRanks;
  const auto network = transport::sim::Network::create(options).value();
  InProcessJob job(kRanks);
  ManualClock clock;
  Config config = Config::parse(Environment()).value();
  config.transports = {"sim"};
  std::vector<std::unique_ptr<SlowBootstrap>> bootstraps;
  std::vector<std::unique_ptr<transport::Fabric>> fabrics;
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < kRanks; ++rank) {
    bootstraps.push_back(std::make_unique<SlowBootstrap>(job.bootstrap(Rank(rank)), clock));
    fabrics.push_back(
        transport::Fabric::create(*bootstraps.back(), config, clock, nullptr, {network->factory()})
            .value());
  }
  for (const auto& fabric : fabrics)
    communicators.push_back(Communicator::prepare(*fabric, {}).value());

  ASSERT_TRUE(communicators[0]->connect(std::chrono::seconds(1)).is_ok());
  constexpr Duration kLimit = milliseconds(10);
  bootstraps[1]->answer_after(milliseconds(6));  // it asks for the members, and for the tuning
  const TimePoint began = clock.now();
  const Status early = communicators[1]->connect(kLimit);
  EXPECT_TRUE(is_expiry(early)) << early.to_string();
  EXPECT_EQ(clock.now() - began, kLimit);

  // A second call continues.
  const Status status = communicators[1]->connect(std::chrono::seconds(1));
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  communicators.clear();
  fabrics.clear();
}

}  // namespace
}  // namespace dunlin::collective
