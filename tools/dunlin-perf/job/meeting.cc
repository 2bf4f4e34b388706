#include "tools/dunlin-perf/job/meeting.h"

#include <fmt/format.h>

#include <unistd.h>
#include <nlohmann/json.hpp>

#include <thread>

#include "runtime/bootstrap/discovery.h"
#include "runtime/bootstrap/tcp_bootstrap.h"
#include "runtime/log.h"
#include "runtime/print.h"

namespace dunlin::perf {
namespace {

using bootstrap::Coordinator;
using bootstrap::JoinPlan;
using bootstrap::TcpBootstrap;
using Json = nlohmann::ordered_json;

// This secret is public. It serves measurements in networks that others cannot reach.
constexpr const char* kPublishedSecret = "dunlin-perf without a secret";
constexpr Duration kConnectTimeout = std::chrono::seconds(5);
constexpr Duration kBetweenAttempts = std::chrono::milliseconds(250);
constexpr Duration kForever = std::chrono::hours(24 * 365);
// The version of the messages between client and listener.
constexpr int kVersion = 3;
constexpr const char* kRequestKey = "perf/request";
constexpr Rank kClient(0);
constexpr Rank kListener(1);
constexpr const char* kAnswerKey = "perf/answer";

bool has_secret(const Config& config) {
  return !config.job_secret.empty() || !config.job_secret_file.empty();
}

Result<std::string> secret_of(const Config& config) {
  if (!has_secret(config)) return std::string(kPublishedSecret);
  return bootstrap::read_job_secret(config);
}

JoinPlan plan_for(Rank rank, const Config& config, const std::string& secret) {
  JoinPlan plan;
  plan.job.rank = rank;
  plan.job.size = 2;
  plan.job.launcher = "dunlin-perf";
  plan.secret = secret;
  plan.host = kListener;
  plan.linger = config.deadline;
  plan.counts_local = true;
  return plan;
}

std::string to_text(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string self() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return fmt::format("process {}", getpid());
  return fmt::format("{}, process {}", name, getpid());
}

// Whether the listener serves another client, or did so a moment ago.
bool is_busy(const Status& status) {
  return status.code() == Code::kAlreadyExists || status.code() == Code::kUnavailable;
}

Status explain(const Status& why, const Options& options, const Config& config, Duration timeout) {
  const std::string where = options.endpoint.to_string();
  if (is_busy(why)) {
    return {why.code(), fmt::format("the listener at {} serves another client (tried for {:g} s)",
                                    where, to_seconds(timeout))};
  }
  if (why.code() == Code::kPermissionDenied) {
    return {why.code(), fmt::format("the listener at {} has another secret ({} here): set the same "
                                    "DUNLIN_JOB_SECRET on both sides",
                                    where, has_secret(config) ? "one is set" : "none is set")};
  }
  if (why.code() == Code::kDeadlineExceeded) {
    return {why.code(), fmt::format("no listener at {}; start `dunlin-perf --listen` "
                                    "there first ({})",
                                    where, why.message())};
  }
  return Status(why).with_context("connecting to " + where);
}

Result<std::unique_ptr<Bootstrap>> join_listener(const Options& options, const Config& config,
                                                 Duration timeout) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + timeout;
  DUNLIN_ASSIGN(const std::string secret, secret_of(config));
  for (;;) {
    JoinPlan plan = plan_for(kClient, config, secret);
    plan.coordinator = {options.endpoint};
    plan.timeout = std::chrono::ceil<std::chrono::seconds>(deadline - clock.now());
    auto joined = TcpBootstrap::join(std::move(plan));
    if (joined) return joined;
    if (!is_busy(joined.status()) || clock.now() + kBetweenAttempts >= deadline) {
      return explain(joined.status(), options, config, timeout);
    }
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

// The client's part of Listener::agree().
Status agree(Bootstrap& bootstrap, const Options& options, const Config& config) {
  const Json request{{"version", kVersion}, {"name", self()}, {"options", to_json(options)}};
  DUNLIN_TRY(bootstrap.publish(kRequestKey, as_bytes(request.dump())));
  DUNLIN_ASSIGN(const Bytes answer, bootstrap.lookup_from(kListener, kAnswerKey, config.deadline));
  if (answer.empty()) return Status::ok();
  return {Code::kInvalidArgument, fmt::format("the listener at {} refuses: {}",
                                              options.endpoint.to_string(), to_text(answer))};
}

Status read_request(const std::string& request, std::string& name, Shared& options) try {
  const Json json = Json::parse(request);
  if (json.at("version") != kVersion) {
    return {Code::kInvalidArgument, "client and listener are of different versions of Dunlin"};
  }
  name = json.at("name");
  DUNLIN_ASSIGN(options, shared_from_json(json.at("options")));
  return Status::ok();
} catch (const Json::exception& error) {
  return {Code::kCorrupted, fmt::format("a malformed request: {}", error.what())};
}

Status judge(const Shared& listener, const Shared& client) {
  const std::string problem = disagreement(listener, client);
  return problem.empty() ? Status::ok() : Status(Code::kInvalidArgument, problem);
}

}  // namespace

Status check_unlaunched(const Environment& environment) {
  for (const char* name : {"DUNLIN_RANK", "DUNLIN_SIZE", "DUNLIN_LOCAL_RANK", "DUNLIN_LOCAL_SIZE",
                           "DUNLIN_BOOTSTRAP_ADDRESS", "DUNLIN_COORDINATOR", "RANK", "PMIX_RANK"}) {
    if (!environment.get(name)) continue;
    return {Code::kInvalidArgument,
            fmt::format("--listen and --connect are for a start without a launcher, but {} is set: "
                        "start without the launcher, or leave the option out",
                        name)};
  }
  return Status::ok();
}

Result<std::unique_ptr<Bootstrap>> connect(const Options& options, const Config& config,
                                           const Environment& environment) {
  const bool is_told = environment.get("DUNLIN_BOOTSTRAP_TIMEOUT").has_value();
  DUNLIN_ASSIGN(auto joined, join_listener(options, config,
                                           is_told ? config.bootstrap_timeout : kConnectTimeout));
  DUNLIN_TRY(agree(*joined, options, config));
  return joined;
}

Status Listener::start_coordinator() {
  auto started = Coordinator::start({.size = 2,
                                     .job_id = config_.job_id,
                                     .secret = secret_,
                                     .heartbeat = config_.heartbeat,
                                     .grace = config_.reconnect_timeout,
                                     .listen = endpoint_});
  if (!started) return std::move(started).status();
  coordinator_ = std::move(started).value();
  endpoint_ = coordinator_->address();
  return Status::ok();
}

Status Listener::open() {
  DUNLIN_ASSIGN(secret_, secret_of(config_));
  endpoint_ = options_.endpoint;
  DUNLIN_TRY(start_coordinator());
  std::string text = endpoint_.host.empty()
                         ? fmt::format("listening at port {} of all interfaces\n", endpoint_.port)
                         : fmt::format("listening at {}\n", endpoint_.to_string());
  if (!has_secret(config_)) {
    text +=
        "no DUNLIN_JOB_SECRET: every process that reaches this port can take part in the "
        "measurement\n";
  }
  return print(text);
}

Status Listener::accept(Guest& guest) {
  for (;;) {
    if (!coordinator_) DUNLIN_TRY(start_coordinator());
    JoinPlan plan = plan_for(kListener, config_, secret_);
    plan.coordinator = {endpoint_};
    if (endpoint_.host.empty()) plan.coordinator.front().host = "127.0.0.1";
    plan.hosted = std::move(coordinator_);
    plan.timeout = kForever;
    auto joined = TcpBootstrap::join(std::move(plan));
    if (joined) {
      guest.bootstrap = std::move(joined).value();
      guest.name = "a client";
      return agree(guest);
    }
    if (joined.status().code() != Code::kPeerDead) return std::move(joined).status();
    DUNLIN_WARN("a client vanished: {}", joined.status().message());
  }
}

Status Listener::agree(Guest& guest) const {
  DUNLIN_ASSIGN(const Bytes request,
                guest.bootstrap->lookup_from(kClient, kRequestKey, config_.deadline));
  Status verdict = read_request(to_text(request), guest.name, guest.options);
  if (verdict.is_ok()) verdict = judge(options_, guest.options);
  DUNLIN_TRY(guest.bootstrap->publish(kAnswerKey, as_bytes(verdict.message())));
  return verdict;
}

}  // namespace dunlin::perf
