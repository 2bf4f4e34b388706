// Where the ucx transport listens. UCX authenticates nobody, so a job on one host must not listen
// on other interfaces than loopback.
#include <arpa/inet.h>
#include <fmt/format.h>
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
  // job whose coordinator has this address.
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

TEST_F(UcxListeningTest, AtLoopbackInAJobOnOneHost) {
  for (const char* const coordinator : {"127.0.0.1:1", "localhost:1", "[::1]:1"}) {
    EXPECT_THAT(addresses_with(coordinator),
                ::testing::AllOf(::testing::Not(::testing::IsEmpty()),
                                 ::testing::Each(::testing::StrEq(kListensAtLoopback))))
        << coordinator;
  }
}

TEST_F(UcxListeningTest, AtTheInterfaceThatLeadsToTheCoordinator) {
  const auto addresses = bootstrap::interface_addresses();
  if (addresses.empty()) GTEST_SKIP() << "this host has only loopback";
  for (const std::string& address : addresses) {
    in_addr bytes{};
    ASSERT_EQ(inet_pton(AF_INET, address.c_str(), &bytes), 1);
    EXPECT_THAT(addresses_with(address + ":1"),
                ::testing::AllOf(::testing::Not(::testing::IsEmpty()),
                                 ::testing::Each(fmt::format("{:08X}", bytes.s_addr))))
        << address;
  }
}

TEST_F(UcxListeningTest, WhereOtherHostsReachItIfNothingIsKnownOfTheCoordinator) {
  if (bootstrap::interface_addresses().empty()) GTEST_SKIP() << "this host has only loopback";
  for (const char* const coordinator : {"", "0.0.0.0:1", "nowhere.invalid:1"}) {
    EXPECT_THAT(addresses_with(coordinator),
                ::testing::Contains(::testing::StrNe(kListensAtLoopback)))
        << coordinator;
  }
}

}  // namespace
}  // namespace dunlin::testing
