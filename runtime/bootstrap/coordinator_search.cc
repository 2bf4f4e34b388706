#include "runtime/bootstrap/coordinator_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "runtime/bootstrap/constants.h"
#include "runtime/log.h"

namespace dunlin::bootstrap {
namespace {

// The attempts of a rank to reach its coordinator. Until a coordinator has proven that it knows the
// secret, whatever answers may be another program, and the rank tries again.
class Search {
 public:
  Search(const JoinPlan& plan, TimePoint deadline)
      : plan_(plan), deadline_(deadline), request_{plan.job.rank,
                                                   plan.job.size,
                                                   plan.job.job_id,
                                                   plan.secret,
                                                   plan.process.to_string(),
                                                   {},
                                                   plan.job.founders} {}

  // The coordinator may start later than this process, so this tries until the deadline.
  Result<AuthenticatedSocket> run() {
    do {
      Duration pause = kConnectRetry;
      for (const Endpoint& endpoint : plan_.coordinator) {
        Refusal refusal = Refusal::kNone;
        auto connection = try_endpoint(endpoint, refusal);
        if (connection) return connection;
        last_ = std::move(connection).status().with_context(endpoint.to_string());
        if (refusal == Refusal::kByCoordinator) return last_;
        if (refusal == Refusal::kByAnyone) {
          note_refusal();
          pause = kRefusedRetry;
        }
      }
      std::this_thread::sleep_for(std::min<Duration>(pause, deadline_ - clock_.now()));
    } while (clock_.now() < deadline_);
    return give_up();
  }

 private:
  Result<AuthenticatedSocket> try_endpoint(const Endpoint& endpoint, Refusal& refusal) const {
    const TimePoint challenge_deadline = std::min(deadline_, clock_.now() + kChallengeTimeout);
    DUNLIN_ASSIGN(Fd fd, connect_to(endpoint, challenge_deadline));
    return authenticate(FrameSocket(std::move(fd)), request_, challenge_deadline, deadline_,
                        refusal);
  }

  // The user learns at once what may be its mistake.
  void note_refusal() {
    if (!refusal_) {
      DUNLIN_WARN(
          "bootstrap: {} at {}; trying again until the timeout of {:g} s",
          plan_.job.rank == Rank() ? "joining" : fmt::format("rank {}", plan_.job.rank.value()),
          last_.message(), to_seconds(plan_.timeout));
    }
    refusal_ = last_;
  }

  Status give_up() const {
    std::string why(last_.message());
    if (refusal_ && refusal_->message() != last_.message()) {
      why = fmt::format("{}; before, {}", why, refusal_->message());
    }
    const bool is_denied = refusal_ && refusal_->code() == Code::kPermissionDenied;
    return {is_denied ? Code::kPermissionDenied : Code::kDeadlineExceeded,
            fmt::format("{} has not answered within {:g} s: {}", host(), to_seconds(plan_.timeout),
                        why)};
  }

  std::string host() const {
    return plan_.host == Rank() ? "the launcher's coordinator" : plan_.host_name();
  }

  const JoinPlan& plan_;
  const TimePoint deadline_;
  const JoinRequest request_;
  SteadyClock clock_;
  Status last_;
  std::optional<Status> refusal_;  // the last one without a proof
};

bool says(const Status& status, int error) {
  return status.message().find(std::strerror(error)) != std::string_view::npos;
}

}  // namespace

Status JoinPlan::start_coordinator(const Config& config, const Endpoint& listen) {
  DUNLIN_ASSIGN(hosted, Coordinator::start({.size = job.size,
                                            .founders = job.founders,
                                            .job_id = job.job_id,
                                            .secret = secret,
                                            .heartbeat = config.heartbeat,
                                            .grace = config.reconnect_timeout,
                                            .listen = listen}));
  return Status::ok();
}

std::string JoinPlan::host_name() const {
  return host == Rank() ? "the launcher"
                        : fmt::format("rank {}, which runs the coordinator,", host.value());
}

Result<AuthenticatedSocket> find_coordinator(const JoinPlan& plan, TimePoint deadline) {
  return Search(plan, deadline).run();
}

ReturnAttempt try_to_return(const JoinPlan& plan, const Resumption& session) {
  const SteadyClock clock;
  const JoinRequest request{.rank = plan.job.rank,
                            .size = plan.job.size,
                            .job_id = plan.job.job_id,
                            .secret = plan.secret,
                            .process = plan.process.to_string(),
                            .resumed = session,
                            .founders = plan.job.founders};
  ReturnAttempt attempt;
  attempt.is_refused = true;
  for (const Endpoint& endpoint : plan.coordinator) {
    const TimePoint deadline = clock.now() + kAttemptTime;
    Refusal refusal = Refusal::kNone;
    auto fd = connect_to(endpoint, deadline);
    if (!fd) {
      attempt.is_refused = attempt.is_refused && says(fd.status(), ECONNREFUSED);
      attempt.problem = fd.status().to_string();
      continue;
    }
    attempt.is_refused = false;
    auto made = authenticate(FrameSocket(std::move(*fd)), request, deadline, deadline, refusal);
    if (made) {
      attempt.connection = std::move(*made);
      return attempt;
    }
    attempt.problem = made.status().to_string();
    if (refusal == Refusal::kByCoordinator) attempt.final = std::move(made).status();
  }
  return attempt;
}

}  // namespace dunlin::bootstrap
