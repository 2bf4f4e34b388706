// How the members of a Session change: newcomers, ranks that leave, deaths.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bindings/session/session.h"
#include "collectives/elastic/model_snapshot.h"
#include "collectives/waiting/trace_to_death.h"
#include "runtime/bootstrap/step_boundary.h"

namespace dunlin::binding {

using collective::Communicator;

namespace {

// Numbers of an epoch (next_number()) begin with it.
constexpr int kNumberBits = 32;

}  // namespace

std::string Session::name_of_epoch(std::string_view name) const {
  const std::uint64_t epoch = last_number_ >> kNumberBits;
  return epoch == 0 ? std::string(name) : fmt::format("{} (epoch {})", name, epoch);
}

bool Session::is_member() const {
  return std::ranges::binary_search(bootstrap_->membership().members, job_.rank);
}

Status Session::check_fixed(std::string_view what) const {
  if (!is_elastic() && static_cast<int>(members_.size()) == job_.size) return Status::ok();
  return {Code::kUnavailable,
          fmt::format("{}: all ranks of the job take part, but its members may change", what)};
}

Result<bool> Session::changes_before(std::optional<std::uint64_t> step, bool in_step) {
  bool changes = false;
  const auto ask = [&](transport::Fabric&) -> Status {
    if (!is_elastic()) return Status::ok();
    if (is_retiring_ && !std::exchange(has_retired_, true)) DUNLIN_TRY(bootstrap_->retire());
    const std::uint64_t next = step.value_or(bootstrap::StepBoundary::kNever);
    DUNLIN_ASSIGN(changes, bootstrap_->changes_before(next, config_.deadline));
    if (step && !in_step) changes = bootstrap_->is_change_wanted();
    return Status::ok();
  };
  DUNLIN_TRY(with_fabric(ask));
  return changes;
}

// Members that connect wait for those that they are connected with. If one of these had seen a
// death and gone on to the next epoch, it would be awaited in vain: so all of them are prepared
// before any connects.
Status Session::make_world() {
  const Turn turn(*this);
  const std::uint64_t epoch = bootstrap_->membership().epoch;
  collective::CommunicatorOptions options;
  if (is_elastic() || epoch > 0) {
    options.members = members_;
    options.name = is_member() ? fmt::format("world/{}", epoch)
                               : fmt::format("world of newcomer {}", job_.rank.value());
  }
  std::string name = options.name;
  DUNLIN_ASSIGN(auto world, Communicator::prepare(*fabric_, std::move(options)));
  Status status;
  if (epoch > 0 && is_member())
    status = bootstrap_->barrier("dunlin/world", config_.bootstrap_timeout);
  if (status) status = world->connect();
  if (status) {
    auto adopted = adopt(std::move(name), std::move(world));
    status = adopted.status();
    if (adopted) world_ = std::move(*adopted);
  } else {
    unformed_.push_back(std::move(world));  // peers may know its memory
  }
  // Members whose first calls ended before another one died would take the world for formed, and
  // others not. The coordinator gives all the same answer.
  if (epoch > 0 && is_member()) {
    Status met = bootstrap_->barrier("dunlin/world is formed", config_.bootstrap_timeout);
    if (status) status = std::move(met);
  }
  return status;
}

// No member of the former epoch uses these any more.
void Session::close_epoch() {
  for (auto each = residents_.rbegin(); each != residents_.rend(); ++each) {
    if (!(*each)->outlasts_members()) (*each)->close();
  }
  std::erase_if(residents_, [](const auto& each) { return !each->outlasts_members(); });
  pending_releases_.clear();
  std::ranges::for_each(communicators_.rbegin(), communicators_.rend(),
                        [](const CommunicatorHandle& slot) {
                          slot->gpu = nullptr;
                          slot->communicator.reset();
                        });
  communicators_.clear();
  for (const auto& operation : std::exchange(outstanding_, {})) {
    operation->settle({Code::kClosed, "the members of the job have changed"});
  }
}

// A member that dies may be noticed first by what fails without it. Returns kPeerDead then.
Status Session::name_death(Status failure) {
  if (failure.is_ok() || !fabric_) return failure;
  const Turn turn(*this);
  return collective::name_death(*fabric_, members_, std::move(failure));
}

Result<bool> Session::reform(Duration timeout) {
  if (is_within_call()) {
    return Status(Code::kInvalidArgument,
                  "reform() was called within a wait, for example by a signal handler");
  }
  {
    const Turn turn(*this);
    DUNLIN_TRY(check_open());
    for (const auto& resident : residents_) resident->leave();
    if (is_member()) {
      // After this, no member expects anything of this epoch any more. After a death, the members
      // know nothing of one another before the agreement.
      const Status met = meet("dunlin/change", timeout);
      if (met.is_ok() && has_retired_) return false;
      if (met.is_error() && met.code() != Code::kPeerDead) return met;
    }
    DUNLIN_ASSIGN(Membership next, bootstrap_->reform(timeout));
    close_epoch();
    const std::vector<Rank> former = std::exchange(members_, std::move(next.members));
    // What outlasts its members, as the averages with neighbors do, still refers to its links.
    if (residents_.empty()) {
      for (const Rank rank : former) {
        if (!std::ranges::binary_search(members_, rank)) fabric_->drop_link(rank);
      }
    }
    last_number_ = next.epoch << kNumberBits;
  }
  DUNLIN_TRY(name_death(make_world()));
  return true;
}

Result<std::uint64_t> Session::share_model(std::span<std::byte> model, std::uint64_t version,
                                           Duration timeout) {
  const auto share = [&](transport::Fabric& fabric) -> Status {
    if (!is_member()) {
      return {Code::kInvalidArgument,
              "share_model() was called before reform(), by a rank that is no member yet"};
    }
    const std::string name = fmt::format("dunlin/model/{}", bootstrap_->membership().epoch);
    DUNLIN_ASSIGN(version, collective::share_model(fabric, name, members_, is_newcomer_, model,
                                                   version, timeout));
    is_newcomer_ = false;
    return Status::ok();
  };
  DUNLIN_TRY(name_death(with_fabric(share)));
  return version;
}

}  // namespace dunlin::binding
