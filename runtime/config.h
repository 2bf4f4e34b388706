// The configuration: the DUNLIN_* environment variables, which config.cc declares in one table
// (name, default, unit, range, help). They are read once.
//
// A variable that is not set has its default. A malformed value, a value out of range and an
// unknown DUNLIN_* name are errors that name the variable, its value and what is expected. Times
// need a unit ("8s", "500ms"); sizes may have one ("16K", otherwise bytes). No other code in Dunlin
// reads the environment: it uses Environment for variables of launchers too (RANK, PMIX_RANK, ...).
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

// A copy of environment variables. Tests and embedding programs can make their own.
class Environment {
 public:
  Environment() = default;
  explicit Environment(std::map<std::string, std::string, std::less<>> values)
      : values_(std::move(values)) {}
  // The environment of this process, with the job secret even after hide_job_secret().
  static Environment of_process();
  // Takes the job secret out of the environment of this process and out of /proc/PID/environ, so
  // that no program which is started from now on inherits it. of_process() still returns it, unless
  // a variable that was set since names another one. Joining a job calls it. No other thread may
  // change the environment meanwhile.
  static void hide_job_secret();
  // Whether the secret that of_process() returns is a hidden one.
  static bool hides_job_secret();

  std::optional<std::string> get(std::string_view name) const;
  void set(std::string name, std::string value) { values_[std::move(name)] = std::move(value); }
  const std::map<std::string, std::string, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// The text as a decimal integer; nothing when the text is anything else.
std::optional<std::int64_t> parse_integer(std::string_view text);

enum class CoordinatorHost { kLauncher, kRank0 };
enum class WaitMode { kAuto, kSpin, kYield, kEvent };
enum class VerbsConnect { kAuto, kManager, kBootstrap };
enum class VerbsGpu { kAuto, kDmaBuf, kPeerMemory, kStaging };
enum class RmaMode { kAuto, kOn, kOff };
enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError, kOff };

// What Config::parse() does with DUNLIN_* names that are not in the table. Plugins ignore them:
// they run in programs of others, whose environment may be meant for another version of Dunlin.
enum class UnknownNames { kRefused, kIgnored };

struct Config {
  // The names of transports, in order of preference. The first one that reaches a peer is used for
  // it.
  std::vector<std::string> transports;
  std::string host_id;  // identifies the host; empty: the kernel's boot id
  // The place in the job, as dunlin-run sets it. Empty: another launcher, or a job of one rank.
  std::string rank;
  std::string size;
  std::string local_rank;
  std::string local_size;
  bool join = false;           // this process joins a job that runs already
  std::int64_t max_ranks = 0;  // ranks that may ever take part; 0: those that start the job
  std::string job_id;
  std::string job_secret;
  std::string job_secret_file;
  std::string bootstrap_address;  // HOST:PORT of the coordinator
  CoordinatorHost coordinator = CoordinatorHost::kRank0;
  std::int64_t bootstrap_port = 0;
  Duration bootstrap_timeout{};
  Duration deadline{};  // longest time that a blocking call waits
  Duration heartbeat{};
  Duration reconnect_timeout{};  // how long a rank may be out of contact with the coordinator
  WaitMode wait = WaitMode::kAuto;
  std::int64_t spin_iterations = 0;
  bool huge_pages = true;
  bool shm_process_memory = true;       // peers may access memory that Dunlin did not allocate
  std::string shm_dir;                  // for sockets between containers; empty: abstract sockets
  std::int64_t verbs_queue_depth = 0;   // outstanding operations of a verbs lane
  std::string verbs_device;             // NAME or NAME:PORT, separated by commas; empty: nearest
  std::int64_t verbs_rails = 0;         // ports used together; 0: those of verbs_device, or one
  std::int64_t verbs_queue_pairs = 0;   // per port, to stripe large puts over
  std::int64_t verbs_stripe_above = 0;  // bytes
  // Queue pairs beyond which idle ones are given up.
  std::int64_t verbs_max_connections = 0;
  VerbsConnect verbs_connect = VerbsConnect::kAuto;
  std::int64_t verbs_gid_index = 0;  // -1: chosen by Dunlin
  std::string verbs_pkey;  // partition key (0x...) or its place in the table; empty: the first
  std::int64_t verbs_traffic_class = 0;  // -1: the system's default
  std::int64_t verbs_service_level = 0;
  std::int64_t verbs_timeout = 0;  // the n of 4.096 us * 2^n
  std::int64_t verbs_retry_count = 0;
  bool verbs_relaxed_order = true;  // devices may write data in any order until it is announced
  VerbsGpu verbs_gpu = VerbsGpu::kAuto;  // how verbs accesses GPU memory
  std::int64_t verbs_near_gpu = 0;       // CUDA device number; -1: the current device
  std::int64_t tcp_queue_depth = 0;      // outstanding operations of a tcp lane
  std::string tcp_interface;             // NAME of the interface to listen on; empty: any
  bool tcp_encryption = true;
  std::int64_t ucx_queue_depth = 0;  // outstanding operations of a ucx lane
  RmaMode ucx_rma = RmaMode::kAuto;
  std::string algorithms;   // COLLECTIVE=ALGORITHM, separated by commas
  std::string tuning_file;  // the algorithms that measured fastest
  LogLevel log_level = LogLevel::kWarn;
  std::string trace_file;              // "%r" becomes the rank
  std::string flight;                  // folder of flight records, or "off"; empty: the usual one
  bool flight_keep = false;            // flight records of jobs that end well stay, too
  std::string metrics;                 // where Prometheus reads metrics; empty: nowhere
  std::int64_t fusion_threshold = 0;   // most bytes of small tensors in one message; 0: no fusion
  std::int64_t nodes_per_machine = 0;  // 0: the ranks of a host
  std::string timeline;                // prefix of the timeline files of dunlin.torch

  static Result<Config> parse(const Environment& environment,
                              UnknownNames unknown = UnknownNames::kRefused);
  static Result<Config> from_environment() { return parse(Environment::of_process()); }
};

// A row of the table, for `dunlin-info --config`.
struct ConfigEntry {
  std::string name;           // DUNLIN_...
  std::string default_value;  // as in the environment
  std::string unit;           // of plain numbers, such as "ranks"; times and sizes contain theirs
  std::string range;
  std::string help;
  std::string value;  // the value in use; secrets are hidden
  bool is_set = false;
};
std::vector<ConfigEntry> describe(const Config& config, const Environment& environment);

}  // namespace dunlin
