#include "runtime/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>

namespace dunlin {

Environment Environment::of_process() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    result.values_.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::optional<std::string> Environment::get(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

namespace {

// How a field is read from text and written back. `parse` returns what is wrong, or "".
struct Row {
  const char* name;
  const char* default_value;
  const char* unit;
  const char* range;
  const char* help;
  std::function<std::string(Config&, std::string_view)> parse;
  std::function<std::string(const Config&)> print;
  bool is_secret = false;
};

Row text_row(const char* name, const char* help, std::string Config::*field,
             bool is_secret = false) {
  return {name,
          "",
          "",
          "text",
          help,
          [field](Config& config, std::string_view text) {
            config.*field = text;
            return std::string();
          },
          [field](const Config& config) { return config.*field; },
          is_secret};
}

template <typename T>
Row number_row(const char* name, const char* default_value, const char* unit, std::int64_t low,
               std::int64_t high, const char* range, const char* help, T Config::*field,
               std::int64_t nanoseconds_per_unit = 1) {
  return {name,
          default_value,
          unit,
          range,
          help,
          [=](Config& config, std::string_view text) -> std::string {
            const auto value = parse_integer(text);
            if (!value) return "is not a whole number";
            if (*value < low || *value > high) return fmt::format("is outside {}", range);
            config.*field = T(*value * nanoseconds_per_unit);
            return "";
          },
          [=](const Config& config) {
            if constexpr (std::is_same_v<T, Duration>) {
              return std::to_string((config.*field).count() / nanoseconds_per_unit);
            } else {
              return std::to_string(config.*field);
            }
          }};
}

template <typename T>
Row choice_row(const char* name, const char* default_value, const char* range, const char* help,
               std::vector<std::pair<const char*, T>> choices, T Config::*field) {
  return {name,
          default_value,
          "",
          range,
          help,
          [=](Config& config, std::string_view text) -> std::string {
            for (const auto& [word, value] : choices) {
              if (text == word) {
                config.*field = value;
                return "";
              }
            }
            return fmt::format("is none of {}", range);
          },
          [=](const Config& config) -> std::string {
            for (const auto& [word, value] : choices) {
              if (config.*field == value) return word;
            }
            return "";
          }};
}

constexpr std::int64_t kMillisecond = 1'000'000;

const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {"DUNLIN_TRANSPORTS", "shm,verbs,ucx", "", "names, best first",
       "transports in order of preference; a peer gets the first that reaches it",
       [](Config& config, std::string_view text) -> std::string {
         config.transports.clear();
         while (!text.empty()) {
           const auto comma = std::min(text.find(','), text.size());
           if (comma == 0) return "has an empty name in its list";
           config.transports.emplace_back(text.substr(0, comma));
           text.remove_prefix(std::min(comma + 1, text.size()));
         }
         return config.transports.empty() ? "names no transport" : "";
       },
       [](const Config& config) { return fmt::format("{}", fmt::join(config.transports, ",")); }},
      text_row("DUNLIN_HOST_ID",
               "what identifies this host; processes with another value use no shared memory with "
               "it (default: the kernel's boot id)",
               &Config::host_id),
      text_row("DUNLIN_RANK", "this process's rank (dunlin-run sets it)", &Config::rank),
      text_row("DUNLIN_SIZE", "number of ranks (dunlin-run sets it)", &Config::size),
      text_row("DUNLIN_LOCAL_RANK", "rank among those of this host", &Config::local_rank),
      text_row("DUNLIN_LOCAL_SIZE", "number of ranks of this host", &Config::local_size),
      text_row("DUNLIN_JOB_ID", "name of the job in messages and traces", &Config::job_id),
      text_row("DUNLIN_JOB_SECRET", "the secret that every joiner must know", &Config::job_secret,
               true),
      text_row("DUNLIN_JOB_SECRET_FILE",
               "file with the secret, readable by its owner only (instead of DUNLIN_JOB_SECRET)",
               &Config::job_secret_file),
      text_row("DUNLIN_BOOTSTRAP_ADDRESS", "HOST:PORT of the coordinator (dunlin-run sets it)",
               &Config::bootstrap_address),
      choice_row<CoordinatorHost>(
          "DUNLIN_COORDINATOR", "rank0", "launcher, rank0",
          "who runs the coordinator at DUNLIN_BOOTSTRAP_ADDRESS: the launcher (dunlin-run sets it) "
          "or "
          "the process of rank 0",
          {{"launcher", CoordinatorHost::kLauncher}, {"rank0", CoordinatorHost::kRank0}},
          &Config::coordinator),
      number_row("DUNLIN_BOOTSTRAP_PORT", "0", "", 0, 65535, "0..65535",
                 "port that rank 0 listens on under torchrun's variables (0: MASTER_PORT + 1)",
                 &Config::bootstrap_port),
      number_row("DUNLIN_BOOTSTRAP_TIMEOUT", "30000", "ms", 1, 86'400'000, "1..86400000",
                 "how long to wait for all ranks to join", &Config::bootstrap_timeout,
                 kMillisecond),
      number_row("DUNLIN_DEADLINE", "30000", "ms", 1, 86'400'000, "1..86400000",
                 "how long a blocking call waits for its peers before it reports them",
                 &Config::deadline, kMillisecond),
      number_row("DUNLIN_HEARTBEAT", "200", "ms", 10, 60'000, "10..60000",
                 "how often a process tells the coordinator that it lives; after ten silent "
                 "periods it counts as stalled",
                 &Config::heartbeat, kMillisecond),
      choice_row<WaitMode>("DUNLIN_WAIT", "auto", "auto, spin, yield, event",
                           "how waiting threads wait: auto spins, then yields, then sleeps; fewer "
                           "spins where ranks outnumber cores",
                           {{"auto", WaitMode::kAuto},
                            {"spin", WaitMode::kSpin},
                            {"yield", WaitMode::kYield},
                            {"event", WaitMode::kEvent}},
                           &Config::wait),
      number_row("DUNLIN_SPIN_ITERATIONS", "20000", "polls", 0, 1'000'000'000, "0..1000000000",
                 "polls before a waiter yields its core, where there is a core per rank",
                 &Config::spin_iterations),
      choice_row<bool>("DUNLIN_HUGE_PAGES", "on", "on, off",
                       "use huge pages for regions of 2 MiB and more where the kernel has some",
                       {{"on", true}, {"off", false}}, &Config::huge_pages),
      number_row("DUNLIN_VERBS_QUEUE_DEPTH", "128", "operations", 2, 8192, "2..8192",
                 "operations that a lane of the verbs transport holds before it reports busy, and "
                 "notifications that may be on their way to a process from each of its peers",
                 &Config::verbs_queue_depth),
      text_row(
          "DUNLIN_VERBS_DEVICE",
          "RDMA device of the verbs transport, NAME or NAME:PORT (default: the nearest with an "
          "active port, rather with an IP address; ranks of a host take turns where several are); "
          "or several, separated by commas, of which the first carries the short messages",
          &Config::verbs_device),
      number_row("DUNLIN_VERBS_RAILS", "0", "ports", 0, 8, "0..8",
                 "ports that a process of the verbs transport stripes large puts over (0: as many "
                 "as DUNLIN_VERBS_DEVICE names, or 1)",
                 &Config::verbs_rails),
      number_row("DUNLIN_VERBS_QP_COUNT", "1", "queue pairs", 1, 8, "1..8",
                 "queue pairs per port and peer that large puts of the verbs transport are striped "
                 "over, each as if it were a port",
                 &Config::verbs_queue_pairs),
      number_row("DUNLIN_VERBS_STRIPE_ABOVE", "32768", "bytes", 0, 1 << 30, "0..1073741824",
                 "puts of more bytes are striped where the verbs transport has several ports or "
                 "queue pairs",
                 &Config::verbs_stripe_above),
      choice_row<VerbsConnect>(
          "DUNLIN_VERBS_CONNECT", "auto", "auto, manager, bootstrap",
          "who makes the connections of the verbs transport: librdmacm's connection manager, which "
          "needs IP addresses, or the bootstrap (auto: the manager where both ends have addresses)",
          {{"auto", VerbsConnect::kAuto},
           {"manager", VerbsConnect::kManager},
           {"bootstrap", VerbsConnect::kBootstrap}},
          &Config::verbs_connect),
      number_row(
          "DUNLIN_VERBS_GID_INDEX", "-1", "", -1, 255, "-1..255",
          "the port's GID that connections through the bootstrap are made from (-1: the first "
          "with an IP address, else the first)",
          &Config::verbs_gid_index),
      number_row("DUNLIN_VERBS_TRAFFIC_CLASS", "-1", "", -1, 255, "-1..255",
                 "traffic class of the verbs transport's packets (RoCE: DSCP and ECN bits), as the "
                 "fabric's lossless priority wants it (-1: the system's default)",
                 &Config::verbs_traffic_class),
      number_row("DUNLIN_VERBS_SERVICE_LEVEL", "0", "", 0, 15, "0..15",
                 "InfiniBand service level (RoCE: priority) of the connections that are made "
                 "through the bootstrap; the connection manager's have the route's",
                 &Config::verbs_service_level),
      number_row(
          "DUNLIN_VERBS_TIMEOUT", "14", "", 1, 31, "1..31",
          "n: a device waits 4.096 us * 2^n for an acknowledgement, then sends again (14: 67 "
          "ms; some round up; connections of the manager have the fabric's where the kernel "
          "can't set it)",
          &Config::verbs_timeout),
      number_row("DUNLIN_VERBS_RETRY_COUNT", "6", "times", 0, 7, "0..7",
                 "how often a device sends again in a row before it gives the connection up, and "
                 "another one is made (7: some never give up)",
                 &Config::verbs_retry_count),
      choice_row<VerbsGpu>(
          "DUNLIN_VERBS_GPU", "auto", "auto, dmabuf, peermem, staging",
          "how the verbs transport reaches GPU memory: directly, registered as a dma-buf or "
          "through "
          "nvidia-peermem, or staged through host memory (auto: the first of these that works)",
          {{"auto", VerbsGpu::kAuto},
           {"dmabuf", VerbsGpu::kDmaBuf},
           {"peermem", VerbsGpu::kPeerMemory},
           {"staging", VerbsGpu::kStaging}},
          &Config::verbs_gpu),
      number_row("DUNLIN_VERBS_NEAR_GPU", "-1", "", -1, 1023, "-1..1023",
                 "CUDA device that the ports of the verbs transport are to be near to on PCIe (-1: "
                 "the one that is current when the transport is made; else the thread's NUMA node)",
                 &Config::verbs_near_gpu),
      number_row("DUNLIN_UCX_QUEUE_DEPTH", "128", "operations", 1, 65536, "1..65536",
                 "operations that a lane of the ucx transport holds before it reports busy",
                 &Config::ucx_queue_depth),
      choice_row<RmaMode>("DUNLIN_UCX_RMA", "auto", "auto, on, off",
                          "whether the ucx transport moves large puts by RMA (auto: where the host "
                          "has an RDMA device) or by messages",
                          {{"auto", RmaMode::kAuto}, {"on", RmaMode::kOn}, {"off", RmaMode::kOff}},
                          &Config::ucx_rma),
      choice_row<LogLevel>("DUNLIN_LOG_LEVEL", "warn", "trace, debug, info, warn, error, off",
                           "least severe message that is printed to standard error",
                           {{"trace", LogLevel::kTrace},
                            {"debug", LogLevel::kDebug},
                            {"info", LogLevel::kInfo},
                            {"warn", LogLevel::kWarn},
                            {"error", LogLevel::kError},
                            {"off", LogLevel::kOff}},
                           &Config::log_level),
      text_row("DUNLIN_ALGORITHMS",
               "algorithms to use whatever suits, as COLLECTIVE=ALGORITHM,... "
               "(`dunlin-schedule list` names them)",
               &Config::algorithms),
      text_row("DUNLIN_TUNING_FILE",
               "measured choices of algorithms, written by `dunlin-perf tune` (default: "
               "dunlin/tuning.json in the user's cache folder)",
               &Config::tuning_file),
      text_row("DUNLIN_TRACE",
               "file for a Chrome/Perfetto trace; %r in it becomes the rank (default: no trace)",
               &Config::trace_file),
      number_row("DUNLIN_FUSION_THRESHOLD", "16384", "bytes", 0, 16384, "0..16384",
                 "small tensors of neighbour averages and gathers that are under way at the same "
                 "time travel to a neighbour together, so many bytes in a message (0: each by "
                 "itself)",
                 &Config::fusion_threshold),
      number_row("DUNLIN_NODES_PER_MACHINE", "0", "ranks", 0, 1'000'000, "0..1000000",
                 "ranks in a row that count as a machine for averages of machines (0: those of a "
                 "host); also tries them out on one host",
                 &Config::nodes_per_machine),
      text_row("DUNLIN_TIMELINE",
               "where dunlin.torch writes a timeline of its operations: the file <this><rank>.json "
               "(default: no timeline)",
               &Config::timeline),
  };
  return rows;
}

// In the cache folder of the XDG base directory specification; empty: there is no home.
std::string default_tuning_file(const Environment& environment) {
  if (const auto cache = environment.get("XDG_CACHE_HOME"); cache && !cache->empty())
    return *cache + "/dunlin/tuning.json";
  const auto home = environment.get("HOME");
  return home && !home->empty() ? *home + "/.cache/dunlin/tuning.json" : "";
}

}  // namespace

Result<Config> Config::parse(const Environment& environment) {
  Config config;
  for (const Row& row : table()) {
    const auto set = environment.get(row.name);
    const std::string problem = row.parse(config, set ? std::string_view(*set) : row.default_value);
    if (!problem.empty()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{}='{}' {}", row.name, set.value_or(""), problem));
    }
  }
  for (const auto& [name, value] : environment.values()) {
    if (!name.starts_with("DUNLIN_")) continue;
    const bool is_known = std::any_of(table().begin(), table().end(),
                                      [&](const Row& row) { return name == row.name; });
    if (!is_known) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("{} is no setting of Dunlin; `dunlin-info --config` lists them", name));
    }
  }
  if (config.tuning_file.empty()) config.tuning_file = default_tuning_file(environment);
  return config;
}

std::vector<ConfigEntry> describe(const Config& config, const Environment& environment) {
  std::vector<ConfigEntry> entries;
  for (const Row& row : table()) {
    const std::string value = row.print(config);
    entries.push_back({row.name, row.default_value, row.unit, row.range, row.help,
                       row.is_secret && !value.empty() ? "(hidden)" : value,
                       environment.get(row.name).has_value()});
  }
  return entries;
}

}  // namespace dunlin
