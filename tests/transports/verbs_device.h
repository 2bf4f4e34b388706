// Tests of the verbs transport between ranks on a made-up device (tests/support/fake_verbs.h).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "runtime/bootstrap/bootstrap.h"
#include "tests/support/fake_verbs.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {

class VerbsDeviceTestBase : public ::testing::Test {
 protected:
  // To be called with what the device is like, before ranks use it.
  void make(FakeVerbs::Options options = {}) { device_.reset(std::move(options)); }

  void run(const RankBody& body, int size = 2) {
    run_ranks({.kind = PeerKind::kThreads,
               .size = size,
               .killed = {},
               .configure =
                   [this](Config& config) {
                     config.transports = {"verbs"};
                     config.verbs_connect = VerbsConnect::kBootstrap;
                     if (configure_) configure_(config);
                   }},
              body);
  }

  // A fabric cannot be made: why?
  std::string refusal() {
    InProcessJob job(1);
    const auto bootstrap = job.bootstrap(Rank(0));
    Config config = Config::from_environment().value();
    config.transports = {"verbs"};
    config.verbs_connect = VerbsConnect::kBootstrap;
    configure_(config);
    const SteadyClock clock;
    const auto fabric = transport::Fabric::create(*bootstrap, config, clock);
    return fabric ? "" : fabric.status().to_string();
  }

  FakeVerbs& device_ = FakeVerbs::instance();
  std::function<void(Config&)> configure_;
};

}  // namespace dunlin::testing
