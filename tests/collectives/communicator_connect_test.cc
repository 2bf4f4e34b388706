#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "collectives/waiting/expiry.h"
#include "runtime/bootstrap/bootstrap.h"
#include "tests/support/forwarding_bootstrap.h"
#include "transports/fabric.h"
#include "transports/sim/network.h"

namespace dunlin::collective {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 8;

// Wraps a bootstrap and delays its lookups and gathers.
class SlowBootstrap final : public testing::ForwardingBootstrap {
 public:
  // Advances `clock`, which must outlive this object.
  SlowBootstrap(std::unique_ptr<Bootstrap> whole, ManualClock& clock)
      : ForwardingBootstrap(*whole), owned_(std::move(whole)), clock_(clock) {}

  void answer_after(Duration delay) { delay_ = delay; }

  Result<Bytes> lookup_from(Rank publisher, std::string_view key, Duration timeout) override {
    clock_.advance(std::min(delay_, timeout));
    if (timeout < delay_) return Status(Code::kDeadlineExceeded, "no answer yet");
    return whole().lookup_from(publisher, key, Duration::zero());
  }
  Result<Bytes> gather(std::string_view name, std::span<const Rank> group,
                       std::span<const std::byte> record, Duration timeout) override {
    clock_.advance(std::min(delay_, timeout));
    if (timeout < delay_) return Status(Code::kDeadlineExceeded, "no answer yet");
    return whole().gather(name, group, record, Duration::zero());
  }

 private:
  std::unique_ptr<Bootstrap> owned_;
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
