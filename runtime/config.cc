#include "runtime/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/printable.h"
#include "runtime/units.h"

namespace dunlin {

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

namespace {

// A setting. `parse` reads the field from text, and returns what to give instead, or "". `print`
// writes the field as `parse` reads it.
struct Row {
  const char* name;
  const char* default_value;
  const char* unit;
  std::string range;
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
               std::int64_t high, const char* help, T Config::*field) {
  return {name,
          default_value,
          unit,
          fmt::format("{}..{}", low, high),
          help,
          [=](Config& config, std::string_view text) -> std::string {
            const auto value = parse_integer(text);
            if (!value || *value < low || *value > high)
              return fmt::format("give a whole number from {} to {}", low, high);
            config.*field = T(*value);
            return "";
          },
          [=](const Config& config) { return std::to_string(config.*field); }};
}

bool is_bare_number(std::string_view text) {
  const auto number = take_number<double>(text);
  return number && *number != 0 && text.empty();
}

Row time_row(const char* name, const char* default_value, Duration low, Duration high,
             const char* help, Duration Config::*field) {
  return {name,
          default_value,
          "",
          fmt::format("{}..{}", exact_time(low), exact_time(high)),
          help,
          [=](Config& config, std::string_view text) -> std::string {
            if (is_bare_number(text)) return "give a unit, such as 8s or 500ms";
            const auto time = parse_duration(text, {low, high});
            if (!time) {
              return fmt::format("give a time from {} to {}, such as 8s or 500ms", exact_time(low),
                                 exact_time(high));
            }
            config.*field = *time;
            return "";
          },
          [=](const Config& config) { return exact_time(config.*field); }};
}

Row size_row(const char* name, const char* default_value, std::size_t high, const char* help,
             std::int64_t Config::*field) {
  return {
      name,
      default_value,
      "",
      fmt::format("0..{}", exact_size(high)),
      help,
      [=](Config& config, std::string_view text) -> std::string {
        const auto size = parse_size(text, {.high = high});
        if (!size) {
          return fmt::format("give a size from 0 to {}, such as 4096, 16K or 4KiB",
                             exact_size(high));
        }
        config.*field = static_cast<std::int64_t>(*size);
        return "";
      },
      [=](const Config& config) { return exact_size(static_cast<std::size_t>(config.*field)); }};
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
            return fmt::format("give one of {}", range);
          },
          [=](const Config& config) -> std::string {
            for (const auto& [word, value] : choices) {
              if (config.*field == value) return word;
            }
            return "";
          }};
}

constexpr const char* kTransportNames = "give names separated by commas, such as shm,verbs";
constexpr Duration kMillisecond = std::chrono::milliseconds(1);
constexpr Duration kDay = std::chrono::hours(24);

const std::vector<Row>& table() {
  static const std::vector<Row> kRows = {
      {"DUNLIN_TRANSPORTS", "shm,verbs,tcp,ucx", "", "names, best first",
       "transports in order of preference; the first one that reaches a peer is used for it",
       [](Config& config, std::string_view text) -> std::string {
         config.transports.clear();
         while (!text.empty()) {
           const auto comma = std::min(text.find(','), text.size());
           if (comma == 0) return kTransportNames;
           config.transports.emplace_back(text.substr(0, comma));
           text.remove_prefix(std::min(comma + 1, text.size()));
         }
         return config.transports.empty() ? kTransportNames : "";
       },
       [](const Config& config) { return fmt::format("{}", fmt::join(config.transports, ",")); }},
      text_row(
          "DUNLIN_HOST_ID",
          "identifies this host; only processes with the same value share memory (default: the "
          "kernel's boot id)",
          &Config::host_id),
      text_row("DUNLIN_RANK", "this process's rank (dunlin-run sets it)", &Config::rank),
      text_row("DUNLIN_SIZE", "number of ranks (dunlin-run sets it)", &Config::size),
      text_row("DUNLIN_LOCAL_RANK", "number of this process among the ranks of this host",
               &Config::local_rank),
      text_row("DUNLIN_LOCAL_SIZE", "number of ranks of this host", &Config::local_size),
      number_row("DUNLIN_MAX_RANKS", "0", "ranks", 0, 65536,
                 "how many ranks may ever take part in the job: processes may join it while it "
                 "runs, and get a rank of their own each (0: only those that start it)",
                 &Config::max_ranks),
      choice_row<bool>(
          "DUNLIN_JOIN", "off", "on, off",
          "this process joins the running job at DUNLIN_BOOTSTRAP_ADDRESS, which gives it a rank "
          "(dunlin-run --join sets it)",
          {{"on", true}, {"off", false}}, &Config::join),
      text_row("DUNLIN_JOB_ID", "name of the job, which all ranks that set it must give alike",
               &Config::job_id),
      text_row("DUNLIN_JOB_SECRET", "the secret that all ranks must know", &Config::job_secret,
               true),
      text_row("DUNLIN_JOB_SECRET_FILE",
               "file with the secret that only its owner can read, instead of DUNLIN_JOB_SECRET",
               &Config::job_secret_file),
      text_row("DUNLIN_BOOTSTRAP_ADDRESS", "HOST:PORT of the coordinator (dunlin-run sets it)",
               &Config::bootstrap_address),
      choice_row<CoordinatorHost>(
          "DUNLIN_COORDINATOR", "rank0", "launcher, rank0",
          "which process runs the coordinator at DUNLIN_BOOTSTRAP_ADDRESS: the launcher "
          "(dunlin-run "
          "sets it) or rank 0",
          {{"launcher", CoordinatorHost::kLauncher}, {"rank0", CoordinatorHost::kRank0}},
          &Config::coordinator),
      number_row("DUNLIN_BOOTSTRAP_PORT", "0", "", 0, 65535,
                 "port that rank 0 listens on under torchrun's variables (0: MASTER_PORT + 1)",
                 &Config::bootstrap_port),
      time_row("DUNLIN_BOOTSTRAP_TIMEOUT", "30s", kMillisecond, kDay,
               "how long a rank waits for all ranks to join", &Config::bootstrap_timeout),
      time_row("DUNLIN_DEADLINE", "30s", kMillisecond, kDay,
               "how long a blocking call waits for peers before it fails and names them",
               &Config::deadline),
      time_row("DUNLIN_HEARTBEAT", "200ms", 10 * kMillisecond, 60'000 * kMillisecond,
               "interval at which a rank sends a heartbeat to the coordinator; after ten missing "
               "heartbeats the rank counts as stalled",
               &Config::heartbeat),
      time_row(
          "DUNLIN_RECONNECT_TIMEOUT", "30s", 1000 * kMillisecond, kDay,
          "how long a rank may be without a connection to the coordinator before it counts as "
          "dead; the rank is cut off after three quarters of this. It has to leave time to "
          "notice an outage after ten heartbeats, and its default grows with them. The default "
          "outlasts the restart of a switch, and is not longer than the default of "
          "DUNLIN_DEADLINE",
          &Config::reconnect_timeout),
      choice_row<WaitMode>(
          "DUNLIN_WAIT", "auto", "auto, spin, yield, event",
          "how blocking calls wait: auto spins, then yields, then sleeps, and does not spin where "
          "something else wants the core; spin only spins, yield only yields, event only sleeps",
          {{"auto", WaitMode::kAuto},
           {"spin", WaitMode::kSpin},
           {"yield", WaitMode::kYield},
           {"event", WaitMode::kEvent}},
          &Config::wait),
      number_row("DUNLIN_SPIN_ITERATIONS", "20000", "polls", 0, 1'000'000'000,
                 "polls before a waiting thread yields its core, when each rank has a core; it "
                 "yields after 50 us at the latest (DUNLIN_WAIT=auto)",
                 &Config::spin_iterations),
      choice_row<bool>("DUNLIN_HUGE_PAGES", "on", "on, off",
                       "use huge pages for regions of 2 MiB and more if the kernel has free ones",
                       {{"on", true}, {"off", false}}, &Config::huge_pages),
      choice_row<bool>("DUNLIN_SHM_CMA", "on", "on, off",
                       "whether peers on this host may access registered memory that Dunlin did "
                       "not allocate, by process_vm_writev and process_vm_readv",
                       {{"on", true}, {"off", false}}, &Config::shm_process_memory),
      text_row("DUNLIN_SHM_DIR",
               "folder that the containers of this host share, for the sockets by which their "
               "ranks agree on shared memory (default: none; it is needed only if they share "
               "neither a PID namespace nor a network namespace)",
               &Config::shm_dir),
      number_row("DUNLIN_VERBS_QUEUE_DEPTH", "128", "operations", 2, 8192,
                 "operations of a verbs lane that may be outstanding before it reports busy, and "
                 "notifications that may be on their way from each peer to a process",
                 &Config::verbs_queue_depth),
      number_row(
          "DUNLIN_VERBS_MAX_CONNECTIONS", "1024", "queue pairs", 2, 1 << 20,
          "queue pairs that a process of the verbs transport keeps; beyond that, connections "
          "that are idle are given up, the least recently used first, and made again when "
          "they are needed",
          &Config::verbs_max_connections),
      text_row(
          "DUNLIN_VERBS_DEVICE",
          "RDMA devices of the verbs transport, NAME or NAME:PORT, separated by commas; the first "
          "carries the short messages (default: the nearest device with an active port, preferably "
          "with an IP address; ranks of a host take equally near ones in turn)",
          &Config::verbs_device),
      number_row("DUNLIN_VERBS_RAILS", "0", "ports", 0, 8,
                 "ports that the verbs transport stripes large puts over (0: those that "
                 "DUNLIN_VERBS_DEVICE names, or 1)",
                 &Config::verbs_rails),
      number_row("DUNLIN_VERBS_QP_COUNT", "1", "queue pairs", 1, 8,
                 "queue pairs per port and peer that the verbs transport stripes large puts over",
                 &Config::verbs_queue_pairs),
      size_row("DUNLIN_VERBS_STRIPE_ABOVE", "32KiB", std::size_t{1} << 30,
               "puts of more bytes are striped if the verbs transport has several ports or "
               "queue pairs",
               &Config::verbs_stripe_above),
      choice_row<VerbsConnect>(
          "DUNLIN_VERBS_CONNECT", "auto", "auto, manager, bootstrap",
          "how the verbs transport connects: by librdmacm's connection manager, which needs IP "
          "addresses, or through the bootstrap (auto: by the manager if both ends have addresses, "
          "but not within an InfiniBand subnet, whose subnet manager it would ask for every path)",
          {{"auto", VerbsConnect::kAuto},
           {"manager", VerbsConnect::kManager},
           {"bootstrap", VerbsConnect::kBootstrap}},
          &Config::verbs_connect),
      number_row("DUNLIN_VERBS_GID_INDEX", "-1", "", -1, 255,
                 "GID of the port for connections through the bootstrap (-1: that of an IPv4 "
                 "address, otherwise of a global IPv6 address, otherwise the first)",
                 &Config::verbs_gid_index),
      text_row("DUNLIN_VERBS_PKEY",
               "partition of the verbs transport's connections, which are then made through the "
               "bootstrap: a P_Key, such as 0x8001, or its index in the port's table, such as 1 "
               "(default: the first; the connection manager takes that of the IP interface)",
               &Config::verbs_pkey),
      number_row("DUNLIN_VERBS_TRAFFIC_CLASS", "-1", "", -1, 255,
                 "traffic class of the verbs transport's packets (RoCE: DSCP and ECN bits), as the "
                 "fabric's lossless priority requires (-1: the system's default)",
                 &Config::verbs_traffic_class),
      number_row(
          "DUNLIN_VERBS_SERVICE_LEVEL", "0", "", 0, 15,
          "InfiniBand service level (RoCE: priority) of connections through the bootstrap; the "
          "connection manager uses that of the route",
          &Config::verbs_service_level),
      number_row(
          "DUNLIN_VERBS_TIMEOUT", "17", "", 1, 31,
          "n: a device waits 4.096 us * 2^n for an acknowledgment, then sends again (17: 0.5 s; "
          "some devices round up; the connection manager uses the fabric's value if the kernel "
          "cannot set it)",
          &Config::verbs_timeout),
      number_row(
          "DUNLIN_VERBS_RETRY_COUNT", "6", "times", 0, 7,
          "how often in a row a device sends again before the connection fails and a new one "
          "is made (7: some devices never give up)",
          &Config::verbs_retry_count),
      choice_row<bool>("DUNLIN_VERBS_RELAXED_ORDERING", "on", "on, off",
                       "devices may write data into memory in any order until a notification "
                       "announces it, where they can (PCIe relaxed ordering)",
                       {{"on", true}, {"off", false}}, &Config::verbs_relaxed_order),
      choice_row<VerbsGpu>(
          "DUNLIN_VERBS_GPU", "auto", "auto, dmabuf, peermem, staging",
          "how the verbs transport accesses GPU memory: directly, registered as a dma-buf or "
          "through nvidia-peermem, or staged through host memory (auto: the first of these that "
          "works)",
          {{"auto", VerbsGpu::kAuto},
           {"dmabuf", VerbsGpu::kDmaBuf},
           {"peermem", VerbsGpu::kPeerMemory},
           {"staging", VerbsGpu::kStaging}},
          &Config::verbs_gpu),
      number_row(
          "DUNLIN_VERBS_NEAR_GPU", "-1", "", -1, 1023,
          "CUDA device to which the ports of the verbs transport should be near on PCIe (-1: "
          "the current device when the transport is made, otherwise the thread's NUMA node)",
          &Config::verbs_near_gpu),
      number_row("DUNLIN_TCP_QUEUE_DEPTH", "128", "operations", 1, 65536,
                 "operations of a tcp lane that may be outstanding before it reports busy",
                 &Config::tcp_queue_depth),
      text_row("DUNLIN_TCP_INTERFACE",
               "network interface that the tcp transport listens on (default: every interface that "
               "is up, the loopback only if there is no other)",
               &Config::tcp_interface),
      choice_row<bool>("DUNLIN_TCP_ENCRYPTION", "on", "on, off",
                       "whether the tcp transport encrypts what it sends; peers authenticate each "
                       "other in either case",
                       {{"on", true}, {"off", false}}, &Config::tcp_encryption),
      number_row("DUNLIN_UCX_QUEUE_DEPTH", "128", "operations", 1, 65536,
                 "operations of a ucx lane that may be outstanding before it reports busy",
                 &Config::ucx_queue_depth),
      choice_row<RmaMode>(
          "DUNLIN_UCX_RMA", "auto", "auto, on, off",
          "whether the ucx transport carries out large puts by RMA instead of messages "
          "(auto: if the host has an RDMA device)",
          {{"auto", RmaMode::kAuto}, {"on", RmaMode::kOn}, {"off", RmaMode::kOff}},
          &Config::ucx_rma),
      choice_row<LogLevel>("DUNLIN_LOG_LEVEL", "warn", "trace, debug, info, warn, error, off",
                           "lowest severity of the messages that are printed on standard error",
                           {{"trace", LogLevel::kTrace},
                            {"debug", LogLevel::kDebug},
                            {"info", LogLevel::kInfo},
                            {"warn", LogLevel::kWarn},
                            {"error", LogLevel::kError},
                            {"off", LogLevel::kOff}},
                           &Config::log_level),
      text_row("DUNLIN_ALGORITHMS",
               "algorithms to use instead of automatic choice, as COLLECTIVE=ALGORITHM,... "
               "(`dunlin-schedule list` names them)",
               &Config::algorithms),
      text_row("DUNLIN_TUNING_FILE",
               "the fastest measured algorithms, a file that `dunlin-perf tune` writes (default: "
               "dunlin/tuning.json in the user's cache folder)",
               &Config::tuning_file),
      text_row("DUNLIN_TRACE",
               "file for a Chrome/Perfetto trace; %r in it becomes the rank (default: no trace)",
               &Config::trace_file),
      text_row("DUNLIN_FLIGHT",
               "folder in which ranks record what they do and for which ranks they wait, for "
               "`dunlin-top`, "
               "or off (default: /dev/shm/dunlin-flight-UID)",
               &Config::flight),
      choice_row<bool>("DUNLIN_FLIGHT_KEEP", "off", "on, off",
                       "whether the records of jobs that end well are kept, as those of others are",
                       {{"on", true}, {"off", false}}, &Config::flight_keep),
      text_row("DUNLIN_METRICS",
               "where Prometheus can read each rank's metrics: unix:PATH, %r in it becomes the "
               "rank, or a PORT of the loopback interface, to which the local rank is added "
               "(default: nowhere)",
               &Config::metrics),
      size_row(
          "DUNLIN_FUSION_THRESHOLD", "16KiB", 16384,
          "most bytes of a message that carries several small tensors to a neighbor, of averages "
          "and gathers that are in progress at the same time (0: one tensor per message)",
          &Config::fusion_threshold),
      number_row("DUNLIN_NODES_PER_MACHINE", "0", "ranks", 0, 1'000'000,
                 "consecutive ranks that form a machine for hierarchical averages (0: those of a "
                 "host); also tries them out on one host",
                 &Config::nodes_per_machine),
      text_row("DUNLIN_TIMELINE",
               "dunlin.torch writes a timeline of its operations to the file <this><rank>.json "
               "(default: "
               "no timeline)",
               &Config::timeline),
  };
  return kRows;
}

// The file lies in the cache folder of the XDG base directory specification. Empty when there is no
// home folder.
std::string default_tuning_file(const Environment& environment) {
  if (const auto cache = environment.get("XDG_CACHE_HOME"); cache && !cache->empty())
    return *cache + "/dunlin/tuning.json";
  const auto home = environment.get("HOME");
  return home && !home->empty() ? *home + "/.cache/dunlin/tuning.json" : "";
}

// A rank must notice an outage, and be cut off, well before it counts as dead.
Status check_reconnect_timeout(Config& config, bool is_set) {
  const auto shortest =
      std::chrono::ceil<std::chrono::milliseconds>(bootstrap::shortest_grace(config.heartbeat));
  if (config.reconnect_timeout >= shortest) return Status::ok();
  if (is_set) {
    return {Code::kInvalidArgument,
            fmt::format("DUNLIN_RECONNECT_TIMEOUT={}: with DUNLIN_HEARTBEAT={}, give {} or more. A "
                        "rank notices an outage only after ten heartbeats, and has to be cut off "
                        "before it counts as dead",
                        exact_time(config.reconnect_timeout), exact_time(config.heartbeat),
                        exact_time(shortest))};
  }
  config.reconnect_timeout = shortest;
  return Status::ok();
}

}  // namespace

Result<Config> Config::parse(const Environment& environment, UnknownNames unknown) {
  Config config;
  for (const Row& row : table()) {
    const auto set = environment.get(row.name);
    const std::string problem = row.parse(config, set ? std::string_view(*set) : row.default_value);
    if (!problem.empty()) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("{}={}: {}", row.name, bootstrap::printable(set.value_or("")), problem));
    }
  }
  for (const auto& [name, value] : environment.values()) {
    if (!name.starts_with("DUNLIN_") || unknown == UnknownNames::kIgnored) continue;
    // Clang 14 captures no structured bindings, but what is initialized from them.
    const bool is_known = std::any_of(table().begin(), table().end(),
                                      [&name = name](const Row& row) { return name == row.name; });
    if (!is_known) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{} is not a setting of Dunlin; `dunlin-info --config` lists them",
                                bootstrap::printable(name)));
    }
  }
  DUNLIN_TRY(
      check_reconnect_timeout(config, environment.get("DUNLIN_RECONNECT_TIMEOUT").has_value()));
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
