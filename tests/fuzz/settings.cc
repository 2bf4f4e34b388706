// Settings and the values of options (runtime/config.h, units.h): what is accepted lies within its
// limits, and what is printed of it is read again as the same.
#include <algorithm>
#include <cmath>

#include "runtime/config.h"
#include "runtime/units.h"
#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

enum Mode : std::uint8_t { kSeconds, kDuration, kSize, kBandwidth, kInteger, kConfig, kModes };

void check_duration(std::string_view text) {
  for (const std::string_view bare_unit : {"", "s", "us"}) {
    TimeLimits limits;
    limits.bare_unit = bare_unit;
    const auto time = parse_duration(text, limits);
    if (!time) continue;
    FUZZ_CHECK(*time >= limits.low && *time <= limits.high);
    const auto again = parse_duration(exact_time(*time), limits);
    FUZZ_CHECK(again.is_ok() && *again == *time);
  }
}

void check_size(std::string_view text) {
  const auto size = parse_size(text);
  if (!size) return;
  FUZZ_CHECK(*size <= SizeLimits{}.high);
  const auto again = parse_size(exact_size(*size));
  FUZZ_CHECK(again.is_ok() && *again == *size);
}

void check_number(const Result<double>& number) {
  if (number) FUZZ_CHECK(std::isfinite(*number) && *number >= 0);
}

void check_integer(std::string_view text) {
  if (const auto number = parse_integer(text)) {
    FUZZ_CHECK(parse_integer(std::to_string(*number)) == number);
  }
}

// Lines "NAME=VALUE". Names begin with DUNLIN_ where they begin with '@'.
Environment environment_of(std::string_view text) {
  Environment environment;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t equals = std::min(line.find('='), line.size());
    std::string name(line.substr(0, equals));
    if (name.starts_with('@')) name.replace(0, 1, "DUNLIN_");
    environment.set(name, std::string(line.substr(std::min(equals + 1, line.size()))));
  }
  return environment;
}

void check_config(std::string_view text) {
  const Environment environment = environment_of(text);
  const auto config = Config::parse(environment);
  if (!config) {
    FUZZ_CHECK(config.status().message().find("DUNLIN_") != std::string_view::npos);
    return;
  }
  FUZZ_CHECK(config->deadline >= Duration::zero() && config->heartbeat > Duration::zero());
  FUZZ_CHECK(!config->transports.empty());
  FUZZ_CHECK(config->verbs_timeout >= 0 && config->verbs_timeout < 32);
  // What dunlin-info prints as in force means the same when it is set.
  Environment printed;
  for (const ConfigEntry& entry : describe(*config, environment)) {
    if (entry.name.find("SECRET") == std::string::npos && !entry.value.empty())
      printed.set(entry.name, entry.value);
  }
  const auto again = Config::parse(printed);
  FUZZ_CHECK(again.is_ok());
  FUZZ_CHECK(again->deadline == config->deadline && again->heartbeat == config->heartbeat);
  FUZZ_CHECK(again->fusion_threshold == config->fusion_threshold);
  FUZZ_CHECK(again->transports == config->transports);
}

Seed seed(std::string name, Mode mode, std::string_view text) {
  return headed_seed(std::move(name), {mode}, as_bytes(text));
}

}  // namespace

std::vector<Seed> seeds() {
  return {seed("seconds", kSeconds, "1.5ms"),
          seed("duration", kDuration, "90s"),
          seed("size", kSize, "16KiB"),
          seed("bandwidth", kBandwidth, "100Gb/s"),
          seed("integer", kInteger, "-42"),
          seed("config", kConfig,
               "@DEADLINE=8s\n@TRANSPORTS=shm,tcp\n@FUSION_THRESHOLD=64K\n@WAIT=yield\nHOME=/h\n"),
          seed("config_job", kConfig,
               "@RANK=1\n@SIZE=4\n@BOOTSTRAP=10.0.0.1:4711\n@HEARTBEAT=500ms\n@SPIN_ITERATIONS=9")};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  Input input(data, size);
  const auto mode = input.take<std::uint8_t>() % kModes;
  const Exact exact(input.rest());
  const std::string_view text = exact.text();
  if (mode == kSeconds) check_number(dunlin::parse_seconds(text));
  if (mode == kDuration) check_duration(text);
  if (mode == kSize) check_size(text);
  if (mode == kBandwidth) check_number(dunlin::parse_bandwidth(text));
  if (mode == kInteger) check_integer(text);
  if (mode == kConfig) check_config(text);
  return 0;
}
