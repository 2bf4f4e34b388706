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
  EXPECT_EQ(config.transports, (std::vector<std::string>{"shm", "verbs", "tcp", "ucx"}));
  EXPECT_EQ(config.deadline, std::chrono::seconds(30));
  EXPECT_EQ(config.wait, WaitMode::kAuto);
}

TEST(Config, ValuesAreReadWithTheirUnits) {
  const Config config = Config::parse(Environment(Values{{"DUNLIN_DEADLINE", "1.5s"},
                                                         {"DUNLIN_HEARTBEAT", "20ms"},
                                                         {"DUNLIN_FUSION_THRESHOLD", "4KiB"},
                                                         {"DUNLIN_VERBS_STRIPE_ABOVE", "1M"},
                                                         {"DUNLIN_TRANSPORTS", "ucx"},
                                                         {"DUNLIN_WAIT", "event"},
                                                         {"UNRELATED", "x"}}))
                            .value();
  EXPECT_EQ(config.deadline, std::chrono::milliseconds(1500));
  EXPECT_EQ(config.heartbeat, std::chrono::milliseconds(20));
  EXPECT_EQ(config.fusion_threshold, 4096);
  EXPECT_EQ(config.verbs_stripe_above, 1 << 20);
  EXPECT_EQ(config.transports, std::vector<std::string>{"ucx"});
  EXPECT_EQ(config.wait, WaitMode::kEvent);
}

TEST(Config, ARankIsCutOffWellBeforeItCountsAsDead) {
  const auto reconnect_timeout = [](Values values) {
    return Config::parse(Environment(std::move(values))).value().reconnect_timeout;
  };
  EXPECT_EQ(reconnect_timeout({}), std::chrono::seconds(30));
  EXPECT_EQ(reconnect_timeout({{"DUNLIN_HEARTBEAT", "60s"}}), std::chrono::milliseconds(1'121'334))
      << "the default grows";
  EXPECT_EQ(error_of({{"DUNLIN_HEARTBEAT", "1s"}, {"DUNLIN_RECONNECT_TIMEOUT", "19s"}}),
            "invalid_argument: DUNLIN_RECONNECT_TIMEOUT=19s: with DUNLIN_HEARTBEAT=1s, give 20s or "
            "more. A rank notices an outage only after ten heartbeats, and has to be cut off "
            "before it counts as dead");
  EXPECT_EQ(reconnect_timeout({{"DUNLIN_HEARTBEAT", "1s"}, {"DUNLIN_RECONNECT_TIMEOUT", "20s"}}),
            std::chrono::seconds(20));
}

TEST(Config, MalformedOutOfRangeAndUnknownAreNamed) {
  EXPECT_EQ(error_of({{"DUNLIN_DEADLINE", "8"}}),
            "invalid_argument: DUNLIN_DEADLINE=8: give a unit, such as 8s or 500ms");
  for (const char* const text : {"0", "soon", "", "25h", "-1s", "1e300s"}) {
    EXPECT_EQ(error_of({{"DUNLIN_DEADLINE", text}}),
              std::string("invalid_argument: DUNLIN_DEADLINE=") + text +
                  ": give a time from 1ms to 24h, such as 8s or 500ms");
  }
  // A terminal must take nothing in it for a command.
  EXPECT_EQ(error_of({{"DUNLIN_DEADLINE", "\x1b[31m8\n"}}),
            "invalid_argument: DUNLIN_DEADLINE=\\x1b[31m8\\x0a: give a time from 1ms to 24h, such "
            "as 8s or 500ms");
  EXPECT_EQ(error_of({{"DUNLIN_FUSION_THRESHOLD", "32K"}}),
            "invalid_argument: DUNLIN_FUSION_THRESHOLD=32K: give a size from 0 to 16KiB, such as "
            "4096, 16K or 4KiB");
  for (const char* const text : {"many", "-1", "10s"}) {
    EXPECT_EQ(error_of({{"DUNLIN_SPIN_ITERATIONS", text}}),
              std::string("invalid_argument: DUNLIN_SPIN_ITERATIONS=") + text +
                  ": give a whole number from 0 to 1000000000");
  }
  EXPECT_EQ(error_of({{"DUNLIN_WAIT", "sometimes"}}),
            "invalid_argument: DUNLIN_WAIT=sometimes: give one of auto, spin, yield, event");
  for (const char* const text : {"shm,,ucx", "", ",shm"}) {
    EXPECT_EQ(error_of({{"DUNLIN_TRANSPORTS", text}}),
              std::string("invalid_argument: DUNLIN_TRANSPORTS=") + text +
                  ": give names separated by commas, such as shm,verbs");
  }
  EXPECT_NE(error_of({{"DUNLIN_DEADLNE", "1"}}).find("DUNLIN_DEADLNE is not a setting"),
            std::string::npos);
}

TEST(Config, UnknownNamesAreIgnoredOnRequest) {
  const Environment unknown(Values{{"DUNLIN_DEADLNE", "1"}});
  EXPECT_TRUE(Config::parse(unknown, UnknownNames::kIgnored).is_ok());
  const Environment malformed(Values{{"DUNLIN_DEADLINE", "1"}});
  EXPECT_FALSE(Config::parse(malformed, UnknownNames::kIgnored).is_ok());
}

TEST(Config, ABareNumberIsASizeInBytes) {
  const Environment environment(Values{{"DUNLIN_FUSION_THRESHOLD", "8192"}});
  EXPECT_EQ(Config::parse(environment).value().fusion_threshold, 8192);
}

TEST(Config, DescribedValuesCanBeGivenAgain) {
  const Config config = Config::parse(Environment()).value();
  Environment copy;
  for (const ConfigEntry& entry : describe(config, Environment())) {
    if (entry.default_value.empty()) continue;
    EXPECT_EQ(entry.value, entry.default_value) << entry.name;
    copy.set(entry.name, entry.value);
  }
  EXPECT_TRUE(Config::parse(copy).status().is_ok());
}

TEST(Config, HowGpuMemoryIsReachedIsOneOfFourWords) {
  const auto parsed = [](const char* text) {
    return Config::parse(Environment(Values{{"DUNLIN_VERBS_GPU", text}})).value().verbs_gpu;
  };
  EXPECT_EQ(parsed("auto"), VerbsGpu::kAuto);
  EXPECT_EQ(parsed("dmabuf"), VerbsGpu::kDmaBuf);
  EXPECT_EQ(parsed("peermem"), VerbsGpu::kPeerMemory);
  EXPECT_EQ(parsed("staging"), VerbsGpu::kStaging);
  EXPECT_EQ(
      error_of({{"DUNLIN_VERBS_GPU", "Staging"}}),
      "invalid_argument: DUNLIN_VERBS_GPU=Staging: give one of auto, dmabuf, peermem, staging");
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
