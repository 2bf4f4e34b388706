#include "apps/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "collectives/waiting/trace_to_death.h"
#include "runtime/flight/recorder.h"
#include "runtime/log.h"

namespace dunlin {

int fail(const Status& status) {
  DUNLIN_ERROR("{}", status.to_string());
  const Code code = status.code();
  const bool is_the_users =
      code == Code::kInvalidArgument || code == Code::kNotFound || code == Code::kCorrupted;
  return is_the_users ? 2 : 1;
}

namespace {

// How often a rank that waits for one member looks whether the others live.
constexpr Duration kLookAround = std::chrono::milliseconds(20);

Result<bool> run(Bootstrap& bootstrap, const Config& config, const JobBody& body) {
  const SteadyClock clock;
  DUNLIN_ASSIGN(const auto trace,
                Trace::open(config.trace_file, bootstrap.rank(), bootstrap.size(), clock));
  DUNLIN_ASSIGN(const auto recorder, flight::Recorder::open(config, bootstrap, clock));
  DUNLIN_ASSIGN(const auto fabric,
                transport::Fabric::create(bootstrap, config, clock, trace.get()));
  fabric->record_in(recorder.get());
  auto outcome = body(*fabric);
  if (!outcome) {
    Status cause = collective::trace_to_death(*fabric, std::move(outcome).status());
    if (recorder) recorder->fail(cause);
    return cause;
  }
  if (recorder) recorder->leave(bootstrap.peers());
  if (trace) DUNLIN_TRY(trace->write());
  return outcome;
}

}  // namespace

int run_job(const std::string& transport, const JobBody& body) {
  Environment environment = Environment::of_process();
  if (!transport.empty()) environment.set("DUNLIN_TRANSPORTS", transport);
  const auto config = Config::parse(environment);
  if (!config) return fail(config.status());
  configure_log(config->log_level, Rank());
  auto bootstrap = Bootstrap::join(*config, environment);
  if (!bootstrap) return fail(bootstrap.status());
  configure_log(config->log_level, (*bootstrap)->rank());
  const auto outcome = run(**bootstrap, *config, body);
  if (!outcome) return fail(outcome.status());
  return *outcome ? 0 : 3;
}

// Short lookups, and waits between them that give progress.
Result<Bytes> await_published(transport::Fabric& fabric, Rank owner, const std::string& key,
                              const std::string& what, Duration timeout) {
  Bytes value;
  const auto look_up = [&]() -> Status {
    auto found = fabric.bootstrap().lookup(key, std::chrono::milliseconds(1));
    if (!found)
      return found.status().code() == Code::kDeadlineExceeded ? Status::busy() : found.status();
    value = std::move(found).value();
    return Status::ok();
  };
  const auto awaited = [&] { return std::vector<transport::Awaited>{{owner, what}}; };
  DUNLIN_TRY(fabric.wait(look_up, awaited, timeout));
  return value;
}

Result<Bytes> lookup_among(Bootstrap& bootstrap, const std::vector<Rank>& members, Rank publisher,
                           const std::string& key, Duration timeout) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + timeout;
  for (;;) {
    const Duration left = std::max<Duration>(deadline - clock.now(), Duration::zero());
    auto found = bootstrap.lookup_from(publisher, key, std::min<Duration>(left, kLookAround));
    if (found || found.status().code() != Code::kDeadlineExceeded) return found;
    for (const Rank member : members) {
      if (bootstrap.peers().state(member) != PeerState::kDead) continue;
      return Status(Code::kPeerDead,
                    fmt::format("rank {} is {}; '{}' was awaited from rank {}", member.value(),
                                bootstrap.peers().describe(member), key, publisher.value()))
          .with_peer(member);
    }
    if (clock.now() >= deadline) return found;
  }
}

Result<Bytes> broadcast_from_rank_0(transport::Fabric& fabric, const std::string& key,
                                    const std::string& what, const Bytes& value, Duration timeout) {
  if (fabric.rank() != Rank(0)) return await_published(fabric, Rank(0), key, what, timeout);
  DUNLIN_TRY(fabric.bootstrap().publish(key, value));
  return value;
}

}  // namespace dunlin
