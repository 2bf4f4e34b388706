#include "apps/members.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "collectives/waiting/trace_to_death.h"
#include "runtime/bootstrap/step_boundary.h"
#include "runtime/log.h"
#include "runtime/print.h"

namespace dunlin {
namespace {

nlohmann::ordered_json numbers(const std::vector<Rank>& ranks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Rank rank : ranks) list.push_back(rank.value());
  return list;
}

std::string list(const char* what, const std::vector<Rank>& ranks) {
  std::string text;
  for (const Rank rank : ranks) text += fmt::format(" {}", rank.value());
  return text.empty() ? text : fmt::format("; {}:{}", what, text);
}

}  // namespace

void MembersChange::describe(nlohmann::ordered_json& line) const {
  line["epoch"] = epoch;
  line["workers"] = workers;
  line["joined"] = numbers(joined);
  line["left"] = numbers(left);
  line["died"] = numbers(died);
}

std::string MembersChange::to_text() const {
  return fmt::format("epoch {}: {} workers{}{}{}", epoch, workers, list("joined", joined),
                     list("left", left), list("died", died));
}

Members::Members(transport::Fabric& fabric, Options options)
    : fabric_(fabric),
      options_(std::move(options)),
      now_(fabric.bootstrap().membership()),
      before_(now_.members) {}

bool Members::is_elastic() const {
  const JobInfo& job = fabric_.bootstrap().job();
  return job.founders < job.size;
}

bool Members::is_newcomer() const {
  return fabric_.rank().value() >= founders();
}

int Members::founders() const {
  return fabric_.bootstrap().job().founders;
}

Shard Members::share() const {
  const auto place = std::ranges::lower_bound(ranks(), fabric_.rank()) - ranks().begin();
  return {static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(ranks().size())};
}

Shard Members::first_share() const {
  const auto rank = static_cast<std::uint32_t>(fabric_.rank().value());
  if (!is_newcomer()) return {rank, static_cast<std::uint32_t>(founders())};
  Shard shard{0, 1};
  for (int other = 0; other < fabric_.size(); ++other) {
    if (Rank(other) == fabric_.rank() || !fabric_.peers().is_present(Rank(other))) continue;
    ++shard.ranks;
    if (Rank(other) < fabric_.rank()) ++shard.rank;
  }
  return shard;
}

Duration Members::timeout() const {
  return std::max({fabric_.config().deadline, fabric_.config().bootstrap_timeout, longest_step_});
}

Status Members::post_terms(const Terms& terms) {
  return fabric_.bootstrap().post(options_.program + "/terms", as_bytes(terms.text()));
}

// Checks what would harm the members before this rank becomes one.
Status Members::join(const Terms& terms) {
  DUNLIN_ASSIGN(const Bytes theirs,
                fabric_.bootstrap().lookup(options_.program + "/terms", timeout()));
  const std::string expected(reinterpret_cast<const char*>(theirs.data()), theirs.size());
  if (expected != terms.text()) {
    return {Code::kInvalidArgument,
            fmt::format("the running job trains with other options or data than this process: {}",
                        difference(expected, terms.text(), "the job", "this process"))};
  }
  before_.clear();
  return reform();
}

Result<bool> Members::change_before(std::uint64_t step, bool wants_to_leave) {
  if (!is_elastic()) return false;
  Bootstrap& bootstrap = fabric_.bootstrap();
  if (wants_to_leave && !std::exchange(is_leaving_, true)) DUNLIN_TRY(bootstrap.retire());
  DUNLIN_ASSIGN(const bool changes, bootstrap.changes_before(step, fabric_.config().deadline));
  return options_.has_common_steps ? changes : bootstrap.is_change_wanted();
}

Result<bool> Members::change_before_end() {
  if (!is_elastic()) return false;
  return fabric_.bootstrap().changes_before(bootstrap::StepBoundary::kNever,
                                            fabric_.config().deadline);
}

Status Members::end_epoch() {
  return fabric_.bootstrap().barrier(fmt::format("{}/change/{}", options_.program, epoch()),
                                     timeout());
}

void Members::leave(std::uint64_t steps) {
  print_error(fmt::format("{}: rank {} leaves the job after {} {}\n", options_.program,
                          fabric_.rank().value(), steps, options_.unit));
  fabric_.bootstrap().leave();
}

Status Members::reform() {
  DUNLIN_ASSIGN(Membership next, fabric_.bootstrap().reform(timeout()));
  former_.insert(ranks().begin(), ranks().end());
  now_ = std::move(next);
  return Status::ok();
}

Status Members::name_death(Status failure) const {
  if (options_.on_peer_loss != OnPeerLoss::kContinue) return failure;
  return collective::name_death(fabric_, ranks(), std::move(failure));
}

Status Members::survive(Status outcome, const std::function<Status()>& regroup) {
  Status status = name_death(std::move(outcome));
  while (status.code() == Code::kPeerDead && options_.on_peer_loss == OnPeerLoss::kContinue) {
    DUNLIN_WARN("{}", status.to_string());
    status = reform();
    if (status) status = regroup();
    status = name_death(std::move(status));
  }
  return status;
}

void Members::drop_links() {
  for (const Rank rank : former_) {
    if (!std::ranges::binary_search(ranks(), rank)) fabric_.drop_link(rank);
  }
  former_.clear();
}

MembersChange Members::settle(const std::vector<Rank>& newcomers, std::uint64_t steps) {
  MembersChange change{.epoch = epoch(), .workers = ranks().size(), .joined = newcomers};
  std::vector<Rank> gone;
  std::ranges::set_difference(before_, ranks(), std::back_inserter(gone));
  for (const Rank rank : gone) {
    const bool is_dead = fabric_.peers().state(rank) == PeerState::kDead;
    (is_dead ? change.died : change.left).push_back(rank);
  }
  if (!change.died.empty()) {
    DUNLIN_WARN("epoch {}: continuing with {} of {} workers", change.epoch, change.workers,
                before_.size());
  }
  if (std::ranges::binary_search(change.joined, fabric_.rank())) {
    print_error(fmt::format("{}: rank {} has joined the job after {} {}\n", options_.program,
                            fabric_.rank().value(), steps, options_.unit));
  }
  before_ = ranks();
  return change;
}

}  // namespace dunlin
