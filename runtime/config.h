// The configuration: one declarative table of DUNLIN_* variables (name, default with unit, range,
// help), read once from the environment that the process was started with.
//
// Absent means the default. A malformed value, a value out of range and an unknown DUNLIN_* name
// are errors that say which variable and why. Nothing else in Dunlin reads the environment;
// variables of other launchers (RANK, PMIX_RANK, ...) are read through Environment as well.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/clock.h"
#include "runtime/status.h"

namespace dunlin {

// A snapshot of environment variables; a value, so that tests and embedders can make their own.
class Environment {
 public:
  Environment() = default;
  explicit Environment(std::map<std::string, std::string, std::less<>> values)
      : values_(std::move(values)) {}
  // Of this process.
  static Environment of_process();

  std::optional<std::string> get(std::string_view name) const;
  void set(std::string name, std::string value) { values_[std::move(name)] = std::move(value); }
  const std::map<std::string, std::string, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// A whole decimal number and nothing else.
std::optional<std::int64_t> parse_integer(std::string_view text);

enum class CoordinatorHost { kLauncher, kRank0 };
enum class WaitMode { kAuto, kSpin, kYield, kEvent };
enum class VerbsConnect { kAuto, kManager, kBootstrap };
enum class VerbsGpu { kAuto, kDmaBuf, kPeerMemory, kStaging };
enum class RmaMode { kAuto, kOn, kOff };
enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError, kOff };

struct Config {
  // Order of preference; a peer gets the first one that reaches it.
  std::vector<std::string> transports;
  std::string host_id;  // what counts as one host; empty: the kernel's boot id
  std::string rank;     // this process's number, set by dunlin-run
  std::string size;
  std::string local_rank;
  std::string local_size;
  std::string job_id;
  std::string job_secret;
  std::string job_secret_file;
  std::string bootstrap_address;  // HOST:PORT of the coordinator
  CoordinatorHost coordinator = CoordinatorHost::kRank0;
  std::int64_t bootstrap_port = 0;
  Duration bootstrap_timeout{};
  Duration deadline{};  // of every blocking wait
  Duration heartbeat{};
  WaitMode wait = WaitMode::kAuto;
  std::int64_t spin_iterations = 0;
  bool huge_pages = true;
  std::int64_t verbs_queue_depth = 0;  // operations that a verbs lane holds at a time
  std::string verbs_device;            // NAME or NAME:PORT, separated by commas; empty: the nearest
  std::int64_t verbs_rails = 0;        // ports at a time; 0: those of verbs_device, or one
  std::int64_t verbs_queue_pairs = 0;  // per rail, for stripes
  std::int64_t verbs_stripe_above = 0;  // bytes
  VerbsConnect verbs_connect = VerbsConnect::kAuto;
  std::int64_t verbs_gid_index = 0;      // -1: chosen
  std::int64_t verbs_traffic_class = 0;  // -1: the system's
  std::int64_t verbs_service_level = 0;
  std::int64_t verbs_timeout = 0;  // the n of 4.096 us * 2^n
  std::int64_t verbs_retry_count = 0;
  VerbsGpu verbs_gpu = VerbsGpu::kAuto;  // how GPU memory is reached
  std::int64_t verbs_near_gpu = 0;       // its number; -1: the current one, if any
  std::int64_t ucx_queue_depth = 0;      // operations that a ucx lane holds at a time
  RmaMode ucx_rma = RmaMode::kAuto;
  std::string algorithms;   // COLLECTIVE=ALGORITHM, separated by commas
  std::string tuning_file;  // of measured choices of algorithms
  LogLevel log_level = LogLevel::kWarn;
  std::string trace_file;              // "%r" becomes the rank
  std::int64_t fusion_threshold = 0;   // bytes of small tensors in one message; 0: no fusion
  std::int64_t nodes_per_machine = 0;  // 0: the ranks of a host are a machine
  std::string timeline;                // of dunlin.torch

  static Result<Config> parse(const Environment& environment);
  static Result<Config> from_environment() { return parse(Environment::of_process()); }
};

// A row of the table, for `dunlin-info --config` and the documentation.
struct ConfigEntry {
  std::string name;           // DUNLIN_...
  std::string default_value;  // as it would be written
  std::string unit;           // "", "ms", ...
  std::string range;
  std::string help;
  std::string value;  // what is in force; secrets are hidden
  bool is_set = false;
};
std::vector<ConfigEntry> describe(const Config& config, const Environment& environment);

}  // namespace dunlin
