#include "runtime/config.h"

#include <gtest/gtest.h>

namespace dunlin {
namespace {

using Values = std::map<std::string, std::string, std::less<>>;

std::string error_of(Values values) {
  return Config::parse(Environment(std::move(values))).status().to_string();
}

TEST(Config, EmptyEnvironmentGivesTheDefaults) {
  const Config config = Config::parse(Environment()).value();
  EXPECT_EQ(config.transports, (std::vector<std::string>{"shm", "verbs", "ucx"}));
  EXPECT_EQ(config.deadline, std::chrono::seconds(30));
  EXPECT_EQ(config.wait, WaitMode::kAuto);
}

TEST(Config, ValuesAreReadWithTheirUnits) {
  const Config config = Config::parse(Environment(Values{{"DUNLIN_DEADLINE", "1500"},
                                                         {"DUNLIN_TRANSPORTS", "ucx"},
                                                         {"DUNLIN_WAIT", "event"},
                                                         {"UNRELATED", "x"}}))
                            .value();
  EXPECT_EQ(config.deadline, std::chrono::milliseconds(1500));
  EXPECT_EQ(config.transports, std::vector<std::string>{"ucx"});
  EXPECT_EQ(config.wait, WaitMode::kEvent);
}

TEST(Config, MalformedOutOfRangeAndUnknownAreNamed) {
  EXPECT_EQ(error_of({{"DUNLIN_DEADLINE", "10s"}}),
            "invalid_argument: DUNLIN_DEADLINE='10s' is not a whole number");
  EXPECT_EQ(error_of({{"DUNLIN_DEADLINE", "0"}}),
            "invalid_argument: DUNLIN_DEADLINE='0' is outside 1..86400000");
  EXPECT_EQ(error_of({{"DUNLIN_WAIT", "sometimes"}}),
            "invalid_argument: DUNLIN_WAIT='sometimes' is none of auto, spin, yield, event");
  EXPECT_EQ(error_of({{"DUNLIN_TRANSPORTS", "shm,,ucx"}}),
            "invalid_argument: DUNLIN_TRANSPORTS='shm,,ucx' has an empty name in its list");
  EXPECT_NE(error_of({{"DUNLIN_DEADLNE", "1"}}).find("DUNLIN_DEADLNE is no setting"),
            std::string::npos);
}

TEST(Config, HowGpuMemoryIsReachedIsOneOfFourWords) {
  const auto parsed = [](const char* text) {
    return Config::parse(Environment(Values{{"DUNLIN_VERBS_GPU", text}})).value().verbs_gpu;
  };
  EXPECT_EQ(parsed("auto"), VerbsGpu::kAuto);
  EXPECT_EQ(parsed("dmabuf"), VerbsGpu::kDmaBuf);
  EXPECT_EQ(parsed("peermem"), VerbsGpu::kPeerMemory);
  EXPECT_EQ(parsed("staging"), VerbsGpu::kStaging);
  EXPECT_EQ(error_of({{"DUNLIN_VERBS_GPU", "Staging"}}),
            "invalid_argument: DUNLIN_VERBS_GPU='Staging' is none of auto, dmabuf, peermem, "
            "staging");
}

TEST(Config, DescriptionHidesSecrets) {
  const Environment environment(Values{{"DUNLIN_JOB_SECRET", "hunter2"}});
  const Config config = Config::parse(environment).value();
  for (const ConfigEntry& entry : describe(config, environment)) {
    EXPECT_EQ(entry.value.find("hunter2"), std::string::npos);
    EXPECT_EQ(entry.is_set, entry.name == "DUNLIN_JOB_SECRET");
  }
}

}  // namespace
}  // namespace dunlin
