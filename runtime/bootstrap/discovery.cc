#include "runtime/bootstrap/discovery.h"

#include <fmt/format.h>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/printable.h"
#include "runtime/bootstrap/secret.h"

namespace dunlin::bootstrap {
namespace {

constexpr std::int64_t kMaxRanks = 1 << 16;

// The name, the value and the limits of a variable.
struct Number {
  const char* name;
  std::string text;
  std::int64_t low;
  std::int64_t high;
};

Result<int> read_number(const Number& number) {
  if (number.text.empty()) {
    return Status(Code::kInvalidArgument, fmt::format("{} is not set", number.name));
  }
  const auto value = parse_integer(number.text);
  if (!value || *value < number.low || *value > number.high) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}={}: give a whole number from {} to {}", number.name,
                              printable(number.text), number.low, number.high));
  }
  return static_cast<int>(*value);
}

// The names and values of the four variables that give a process its place in the job.
struct Place {
  const char* size_name;
  std::string size;
  const char* rank_name;
  std::string rank;
  const char* local_size_name;
  std::string local_size;  // empty: 1
  const char* local_rank_name;
  std::string local_rank;  // empty: 0
};

// The place among the ranks of this host, which may have `most`.
Status read_local_place(const Place& place, std::int64_t most, JobInfo& job) {
  const auto or_default = [](const std::string& text, const char* otherwise) {
    return text.empty() ? std::string(otherwise) : text;
  };
  DUNLIN_ASSIGN(job.local_size,
                read_number({place.local_size_name, or_default(place.local_size, "1"), 1, most}));
  DUNLIN_ASSIGN(job.local_rank,
                read_number({place.local_rank_name, or_default(place.local_rank, "0"), 0,
                             job.local_size - 1}));
  return Status::ok();
}

Result<JobInfo> read_place(const Place& place) {
  JobInfo job;
  DUNLIN_ASSIGN(job.size, read_number({place.size_name, place.size, 1, kMaxRanks}));
  DUNLIN_ASSIGN(const int rank, read_number({place.rank_name, place.rank, 0, job.size - 1}));
  job.rank = Rank(rank);
  DUNLIN_TRY(read_local_place(place, job.size, job));
  return job;
}

Place dunlin_place(const Config& config) {
  return {"DUNLIN_SIZE",       config.size,       "DUNLIN_RANK",       config.rank,
          "DUNLIN_LOCAL_SIZE", config.local_size, "DUNLIN_LOCAL_RANK", config.local_rank};
}

// The place of a process that joins a running job: the coordinator gives it the rank.
Result<JobInfo> read_newcomer(const Config& config) {
  if (!config.rank.empty() || !config.size.empty()) {
    return Status(
        Code::kInvalidArgument,
        "DUNLIN_JOIN is on and DUNLIN_RANK or DUNLIN_SIZE is set: the running job gives a "
        "process that joins it both");
  }
  JobInfo job{.size = 0};
  // Among the processes that join together.
  DUNLIN_TRY(read_local_place(dunlin_place(config), kMaxRanks, job));
  return job;
}

}  // namespace

Status leave_room(JobInfo& job, const Config& config) {
  job.founders = job.size;
  if (config.max_ranks == 0) return Status::ok();
  if (config.max_ranks < job.size) {
    return {Code::kInvalidArgument, fmt::format("DUNLIN_MAX_RANKS={}: the job starts with {} ranks",
                                                config.max_ranks, job.size)};
  }
  job.size = static_cast<int>(config.max_ranks);
  return Status::ok();
}

Result<std::string> read_job_id(const Config& config) {
  if (config.job_id.size() <= kMaxJobIdBytes) return config.job_id;
  return Status(Code::kInvalidArgument,
                fmt::format("DUNLIN_JOB_ID is longer than {} bytes", kMaxJobIdBytes));
}

Result<Endpoint> read_endpoint(const char* name, const std::string& text) {
  auto endpoint = Endpoint::parse(text);
  if (!endpoint) return std::move(endpoint).status().with_context(name);
  if (endpoint->port == 0)
    return Status(Code::kInvalidArgument, fmt::format("{}: the port is 0", name));
  return endpoint;
}

LaunchKind launch_kind(const Config& config, const Environment& environment) {
  if (!config.rank.empty() || config.join) return LaunchKind::kDunlin;
  const bool has_rank = environment.get("RANK").has_value();
  const bool is_complete =
      has_rank && environment.get("WORLD_SIZE") && environment.get("MASTER_ADDR");
  const bool has_pmix = environment.get("PMIX_RANK").has_value();
  if (is_complete || (has_rank && !has_pmix)) return LaunchKind::kTorchrun;
  return has_pmix ? LaunchKind::kPmix : LaunchKind::kSingle;
}

Result<Launch> read_dunlin_variables(const Config& config) {
  Launch launch;
  launch.host = config.coordinator;
  if (config.join) {
    DUNLIN_ASSIGN(launch.job, read_newcomer(config));
  } else {
    DUNLIN_ASSIGN(launch.job, read_place(dunlin_place(config)));
    DUNLIN_TRY(leave_room(launch.job, config));
  }
  launch.job.launcher = launch.host == CoordinatorHost::kLauncher ? "dunlin-run" : "environment";
  DUNLIN_ASSIGN(launch.job.job_id, read_job_id(config));
  if (config.bootstrap_address.empty()) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} is set but DUNLIN_BOOTSTRAP_ADDRESS (HOST:PORT of the coordinator) is not",
                    config.join ? "DUNLIN_JOIN" : "DUNLIN_RANK"));
  }
  DUNLIN_ASSIGN(launch.coordinator,
                read_endpoint("DUNLIN_BOOTSTRAP_ADDRESS", config.bootstrap_address));
  launch.listen = listening_endpoint(launch.coordinator);
  DUNLIN_ASSIGN(launch.secret, read_job_secret(config));
  return launch;
}

Result<Launch> read_torchrun_variables(const Config& config, const Environment& environment) {
  const auto get = [&](const char* name) { return environment.get(name).value_or(""); };
  Launch launch;
  DUNLIN_ASSIGN(launch.job, read_place({"WORLD_SIZE", get("WORLD_SIZE"), "RANK", get("RANK"),
                                        "LOCAL_WORLD_SIZE", get("LOCAL_WORLD_SIZE"), "LOCAL_RANK",
                                        get("LOCAL_RANK")}));
  DUNLIN_TRY(leave_room(launch.job, config));
  launch.job.launcher = "torchrun";
  DUNLIN_ASSIGN(launch.job.job_id, read_job_id(config));
  launch.coordinator.host = get("MASTER_ADDR");
  if (launch.coordinator.host.empty()) {
    return Status(Code::kInvalidArgument, "RANK is set but MASTER_ADDR is not");
  }
  auto port = static_cast<int>(config.bootstrap_port);
  if (port == 0) {
    // torchrun's own store listens at MASTER_PORT.
    DUNLIN_ASSIGN(const int master, read_number({"MASTER_PORT", get("MASTER_PORT"), 1, 65534}));
    port = master + 1;
  }
  launch.coordinator.port = static_cast<std::uint16_t>(port);
  launch.listen = listening_endpoint(launch.coordinator);
  DUNLIN_ASSIGN(launch.secret, read_job_secret(config));
  return launch;
}

Result<std::string> read_job_secret(const Config& config) {
  constexpr const char* kHowTo =
      "set DUNLIN_JOB_SECRET to the same random text for all ranks, for example with "
      "`export DUNLIN_JOB_SECRET=$(openssl rand -hex 32)` before the start, or name a file with "
      "mode "
      "600 in DUNLIN_JOB_SECRET_FILE";
  if (!config.job_secret.empty() && !config.job_secret_file.empty()) {
    return Status(Code::kInvalidArgument,
                  "both DUNLIN_JOB_SECRET and DUNLIN_JOB_SECRET_FILE are set; unset one");
  }
  const bool is_file = !config.job_secret_file.empty();
  auto read =
      is_file ? read_secret_file(config.job_secret_file) : Result<std::string>(config.job_secret);
  if (!read) return read;
  const std::string& secret = *read;
  if (secret.empty()) {
    return Status(Code::kInvalidArgument, fmt::format("no job secret: {}", kHowTo));
  }
  if (secret.size() < kMinSecretBytes) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("the job secret in {} has {} characters, {} are needed at least, because short "
                    "ones can be guessed: {}",
                    is_file ? "DUNLIN_JOB_SECRET_FILE" : "DUNLIN_JOB_SECRET", secret.size(),
                    kMinSecretBytes, kHowTo));
  }
  return read;
}

}  // namespace dunlin::bootstrap
