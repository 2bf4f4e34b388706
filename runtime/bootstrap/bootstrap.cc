// Bootstrap::join and key_of.
#include "runtime/bootstrap/bootstrap.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "runtime/bootstrap/discovery.h"
#include "runtime/bootstrap/pmix_launch.h"
#include "runtime/bootstrap/secret.h"
#include "runtime/bootstrap/tcp_bootstrap.h"
#include "runtime/log.h"
#include "runtime/membarrier.h"

namespace dunlin {
namespace {

using bootstrap::JoinPlan;

Result<std::unique_ptr<Bootstrap>> join_launch(bootstrap::Launch launch, const Config& config) {
  JoinPlan plan;
  plan.timeout = config.bootstrap_timeout;
  plan.linger = config.deadline;
  plan.host = launch.host == CoordinatorHost::kRank0 ? Rank(0) : Rank();
  plan.secret = launch.secret;
  plan.coordinator = {launch.coordinator};
  plan.job = std::move(launch.job);
  if (launch.host == CoordinatorHost::kRank0 && plan.job.rank == Rank(0)) {
    Status started = plan.start_coordinator(config, launch.listen);
    // The user may not have chosen this port.
    const bool is_taken =
        started.message().find(std::strerror(EADDRINUSE)) != std::string_view::npos;
    if (is_taken && plan.job.launcher == "torchrun")
      started = std::move(started).with_context(
          "set DUNLIN_BOOTSTRAP_PORT to a free port, the same on all ranks");
    DUNLIN_TRY(std::move(started));
  }
  return bootstrap::TcpBootstrap::join(std::move(plan));
}

// A job of one rank needs no network.
std::unique_ptr<Bootstrap> join_alone() {
  return InProcessJob(1, "single").bootstrap(Rank(0));
}

}  // namespace

std::string Bootstrap::key_of(std::string_view topic, Rank rank) {
  return fmt::format("{}#{}", topic, rank.value());
}

Result<std::unique_ptr<Bootstrap>> Bootstrap::join(const Config& config,
                                                   const Environment& environment) {
  (void)accept_membarriers();  // for shared memory; before the first thread of Dunlin
  switch (bootstrap::launch_kind(config, environment)) {
    case bootstrap::LaunchKind::kDunlin: {
      Environment::hide_job_secret();
      DUNLIN_ASSIGN(auto launch, bootstrap::read_dunlin_variables(config));
      return join_launch(std::move(launch), config);
    }
    case bootstrap::LaunchKind::kTorchrun: {
      Environment::hide_job_secret();
      DUNLIN_ASSIGN(auto launch, bootstrap::read_torchrun_variables(config, environment));
      return join_launch(std::move(launch), config);
    }
    case bootstrap::LaunchKind::kPmix: {
      Environment::hide_job_secret();
      DUNLIN_ASSIGN(auto plan, bootstrap::plan_from_pmix(config));
      return bootstrap::TcpBootstrap::join(std::move(plan));
    }
    case bootstrap::LaunchKind::kSingle:
      if (!config.bootstrap_address.empty()) {
        DUNLIN_WARN(
            "DUNLIN_BOOTSTRAP_ADDRESS is set, but nothing tells this process its rank: it is a job "
            "of its own. With DUNLIN_JOIN=on it joins the job; srun gives ranks with --mpi=pmix");
      }
      break;
  }
  return join_alone();
}

}  // namespace dunlin
