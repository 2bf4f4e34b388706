#include "runtime/bootstrap/discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dunlin::bootstrap {
namespace {

using ::testing::HasSubstr;
using Values = std::map<std::string, std::string, std::less<>>;

Values torchrun() {
  return {{"RANK", "3"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "10.0.0.1"},
          {"MASTER_PORT", "29500"},
          {"DUNLIN_JOB_SECRET", "sixteen letters."}};
}

Values by_hand() {
  return {{"DUNLIN_RANK", "1"},
          {"DUNLIN_SIZE", "2"},
          {"DUNLIN_BOOTSTRAP_ADDRESS", "10.0.0.1:4711"},
          {"DUNLIN_JOB_SECRET", "sixteen letters."}};
}

Result<Launch> read(const Values& values) {
  const Environment environment{values};
  const Config config = Config::parse(environment).value();
  return launch_kind(config, environment) == LaunchKind::kDunlin
             ? read_dunlin_variables(config)
             : read_torchrun_variables(config, environment);
}

std::string error_with(Values values, const std::string& name, const std::string& value) {
  values[name] = value;
  return read(values).status().to_string();
}

LaunchKind kind_of(const Values& values) {
  const Environment environment{values};
  return launch_kind(Config::parse(environment).value(), environment);
}

TEST(Discovery, TorchrunsVariablesPlaceTheProcess) {
  const Launch launch = read(torchrun()).value();
  EXPECT_EQ(launch.job.rank, Rank(3));
  EXPECT_EQ(launch.job.size, 8);
  EXPECT_EQ(launch.job.local_rank, 1);
  EXPECT_EQ(launch.job.local_size, 2);
  EXPECT_EQ(launch.job.launcher, "torchrun");
  EXPECT_EQ(launch.coordinator.to_string(), "10.0.0.1:29501");
  EXPECT_EQ(launch.host, CoordinatorHost::kRank0);
}

TEST(Discovery, ThePortCanBeChosen) {
  Values values = torchrun();
  values["DUNLIN_BOOTSTRAP_PORT"] = "5000";
  EXPECT_EQ(read(values)->coordinator.port, 5000);
}

TEST(Discovery, MalformedTorchrunVariablesAreNamed) {
  EXPECT_EQ(error_with(torchrun(), "RANK", "three"),
            "invalid_argument: RANK=three: give a whole number from 0 to 7");
  EXPECT_EQ(error_with(torchrun(), "RANK", "8"),
            "invalid_argument: RANK=8: give a whole number from 0 to 7");
  EXPECT_EQ(error_with(torchrun(), "WORLD_SIZE", "0"),
            "invalid_argument: WORLD_SIZE=0: give a whole number from 1 to 65536");
  EXPECT_EQ(error_with(torchrun(), "LOCAL_RANK", "2"),
            "invalid_argument: LOCAL_RANK=2: give a whole number from 0 to 1");
  EXPECT_EQ(error_with(torchrun(), "MASTER_PORT", ""), "invalid_argument: MASTER_PORT is not set");
  Values values = torchrun();
  values.erase("WORLD_SIZE");
  EXPECT_EQ(read(values).status().to_string(), "invalid_argument: WORLD_SIZE is not set");
}

TEST(Discovery, AMissingSecretSaysHowToMakeOne) {
  EXPECT_THAT(error_with(torchrun(), "DUNLIN_JOB_SECRET", ""),
              HasSubstr("export DUNLIN_JOB_SECRET=$(openssl rand -hex 32)"));
  EXPECT_THAT(error_with(torchrun(), "DUNLIN_JOB_SECRET_FILE", "/some/file"),
              HasSubstr("both DUNLIN_JOB_SECRET and DUNLIN_JOB_SECRET_FILE"));
}

TEST(Discovery, AShortSecretIsRefused) {
  EXPECT_TRUE(read(torchrun()).is_ok());
  for (const Values& values : {torchrun(), by_hand()}) {
    const std::string error = error_with(values, "DUNLIN_JOB_SECRET", "fifteen letters");
    EXPECT_THAT(error, HasSubstr("invalid_argument: the job secret in DUNLIN_JOB_SECRET has 15"));
    EXPECT_THAT(error, HasSubstr("openssl rand -hex 32"));
    EXPECT_THAT(error, ::testing::Not(HasSubstr("fifteen letters")));
  }
}

TEST(Discovery, AStartByHandNeedsNoLauncher) {
  const Launch launch = read(by_hand()).value();
  EXPECT_EQ(launch.host, CoordinatorHost::kRank0);
  EXPECT_EQ(launch.job.launcher, "environment");
  EXPECT_EQ(launch.job.local_size, 1);
  EXPECT_EQ(launch.listen.to_string(), "10.0.0.1:4711");
}

TEST(Discovery, MalformedVariablesOfDunlinAreNamed) {
  EXPECT_EQ(error_with(by_hand(), "DUNLIN_RANK", "2"),
            "invalid_argument: DUNLIN_RANK=2: give a whole number from 0 to 1");
  EXPECT_EQ(error_with(by_hand(), "DUNLIN_SIZE", ""), "invalid_argument: DUNLIN_SIZE is not set");
  EXPECT_EQ(error_with(by_hand(), "DUNLIN_BOOTSTRAP_ADDRESS", "4711"),
            "invalid_argument: DUNLIN_BOOTSTRAP_ADDRESS: '4711' is not HOST:PORT");
  EXPECT_THAT(error_with(by_hand(), "DUNLIN_BOOTSTRAP_ADDRESS", ""),
              HasSubstr("DUNLIN_BOOTSTRAP_ADDRESS (HOST:PORT of the coordinator) is not"));
}

TEST(Discovery, TheInnermostLauncherCounts) {
  EXPECT_EQ(kind_of({}), LaunchKind::kSingle);
  EXPECT_EQ(kind_of({{"PMIX_RANK", "0"}}), LaunchKind::kPmix);
  EXPECT_EQ(kind_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
            LaunchKind::kSingle);
  Values torchrun_under_srun = torchrun();
  torchrun_under_srun["PMIX_RANK"] = "0";
  EXPECT_EQ(kind_of(torchrun_under_srun), LaunchKind::kTorchrun);
  EXPECT_EQ(kind_of({{"PMIX_RANK", "0"}, {"RANK", "left over"}}), LaunchKind::kPmix);
  Values all = torchrun_under_srun;
  all["DUNLIN_RANK"] = "0";
  EXPECT_EQ(kind_of(all), LaunchKind::kDunlin);
}

TEST(Torchrun, RankZeroSaysWhichSettingChoosesItsPort) {
  Endpoint taken{"127.0.0.1", 0};
  const Fd listener = listen_on(taken).value();
  Values values = torchrun();
  values["RANK"] = values["LOCAL_RANK"] = "0";
  values["MASTER_ADDR"] = taken.host;
  values["MASTER_PORT"] = std::to_string(taken.port - 1);
  const Environment environment{values};
  const auto joined = Bootstrap::join(Config::parse(environment).value(), environment);
  EXPECT_THAT(joined.status().to_string(), HasSubstr("DUNLIN_BOOTSTRAP_PORT"));
  EXPECT_THAT(joined.status().to_string(), HasSubstr(taken.to_string()));
}

TEST(Endpoint, ReadsAddressesAndNames) {
  EXPECT_EQ(Endpoint::parse("node7:80")->host, "node7");
  EXPECT_EQ(Endpoint::parse("[fe80::1]:80")->host, "fe80::1");
  EXPECT_EQ(Endpoint::parse("[fe80::1]:80")->to_string(), "[fe80::1]:80");
  for (const char* bad : {"", ":80", "host", "host:", "host:x", "host:65536", "fe80::1:80", "[]:1",
                          "[[host]]:1", "host]:1"}) {
    EXPECT_FALSE(Endpoint::parse(bad).is_ok()) << bad;
  }
}

TEST(Endpoint, RankZeroListensWhereOthersReachIt) {
  EXPECT_EQ(listening_endpoint({"10.0.0.1", 1}).host, "10.0.0.1");
  EXPECT_EQ(listening_endpoint({"localhost", 1}).host, "127.0.0.1");
  EXPECT_EQ(listening_endpoint({"node7", 1}).host, "");
}

}  // namespace
}  // namespace dunlin::bootstrap
