// Where the ucx transport listens. UCX authenticates nobody, so it must not listen on interfaces
// over which no rank is reached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "runtime/bootstrap/net.h"
#include "tests/support/listening_sockets.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using transport::Fabric;

// Lets UCX choose its devices, whatever this process was started with.
class UcxListeningTest : public ::testing::Test {
 protected:
  static constexpr const char* kVariable = "UCX_NET_DEVICES";

  void SetUp() override {
    const char* const transports = std::getenv("UCX_TLS");
    if (transports != nullptr && std::string(transports).find("tcp") == std::string::npos)
      GTEST_SKIP() << "UCX_TLS keeps UCX from TCP";
  }

  UcxListeningTest() {
    if (const char* const value = std::getenv(kVariable)) value_ = value;
    unsetenv(kVariable);
  }
  ~UcxListeningTest() override {
    if (value_) setenv(kVariable, value_->c_str(), 1);
  }

  // The addresses at which this process listens while two of its threads are connected ranks of a
  // job with its coordinator there.
  static std::vector<std::string> addresses_with(const std::string& coordinator) {
    std::vector<std::string> addresses;
    RunOptions options;
    options.configure = [&](Config& config) {
      config.transports = {"ucx"};
      config.bootstrap_address = coordinator;
    };
    run_ranks(options, [&](Fabric& fabric) {
      const Exposed memory(fabric, "exposed", 64, 1);
      sync(fabric, "connected");
      if (fabric.rank() == Rank(0)) addresses = listening_addresses();
      sync(fabric, "read");
    });
    return addresses;
  }

 private:
  std::optional<std::string> value_;
};

TEST_F(UcxListeningTest, WhereTheCoordinatorIs) {
  EXPECT_THAT(addresses_with("127.0.0.1:1"),
              ::testing::AllOf(::testing::Not(::testing::IsEmpty()),
                               ::testing::Each(::testing::StrEq(kListensAtLoopback))));
}

TEST_F(UcxListeningTest, OnEveryInterfaceIfThatIsUnknown) {
  if (bootstrap::interface_addresses().empty()) GTEST_SKIP() << "this host has only loopback";
  EXPECT_THAT(addresses_with("no-such-host.invalid:1"),
              ::testing::Contains(::testing::StrNe(kListensAtLoopback)));
}

}  // namespace
}  // namespace dunlin::testing
