#include "collectives/rma/mutex_manager.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/log.h"

namespace dunlin::collective {
namespace {

// What a grant says, in its tag.
enum Tag : std::uint64_t { kPlain, kHolderDied, kLost };

}  // namespace

MutexManager::MutexManager(MutexMembers members) : members_(std::move(members)), fences_(members_) {
  if (is_at_owner_rank()) applicants_.resize(members_.members.size());
}

MutexProtocol::State MutexManager::state() const {
  if (count_ % 2 == 0) return told_ == count_ ? State::kIdle : State::kReleasing;
  return granted_ == turn_of(count_) ? State::kHeld : State::kWaiting;
}

void MutexManager::release(bool has_heard) {
  if (state() == State::kHeld && has_heard && outcome_ == LockOutcome::kLockedAfterDeath) ++heard_;
  ++count_;
}

Status MutexManager::progress() {
  if (error_.is_error()) return error_;
  Status status = tell();
  if (!status.is_error()) {
    status = is_at_owner_rank() ? manage() : look_for_grant();
  }
  if (status.is_error()) return error_ = std::move(status);
  return lost_;  // not an error_, as others have to be told
}

// Sends the latest count to the owner rank.
Status MutexManager::tell() {
  if (told_ == count_) return Status::ok();
  if (!is_at_owner_rank()) {
    transport::Notification wish;
    wish.id = members_.cell_at(members_.owner_place);
    wish.sequence = word_of(count_, heard_);
    DUNLIN_TRY(members_.members[members_.owner_place].link->control().notify(wish, nullptr));
  }
  told_ = count_;
  return Status::ok();
}

Status MutexManager::look_for_grant() {
  if (state() != State::kWaiting) return Status::ok();
  const transport::NotifyId cell = members_.cell_of(members_.owner_place);
  if (members_.fabric.board().sequence(cell) != turn_of(count_)) return Status::ok();
  const std::uint64_t tag = members_.fabric.board().cell(cell).tag;
  if (tag == kLost) {
    return {
        Code::kUnavailable,
        fmt::format("mutex '{}': its owner rank says that the holder is gone and cannot be shut "
                    "out, as the coordinator is gone too",
                    members_.name)};
  }
  granted_ = turn_of(count_);
  outcome_ = tag == kPlain ? LockOutcome::kLocked : LockOutcome::kLockedAfterDeath;
  return Status::ok();
}

std::uint64_t MutexManager::word_from(std::size_t place) const {
  return place == members_.self ? word_of(told_, heard_)
                                : members_.fabric.board().sequence(members_.cell_of(place));
}

void MutexManager::note(std::size_t place, std::uint64_t word) {
  Applicant& applicant = applicants_[place];
  if (holder_ == place) {
    holder_ = kNone;
    if (is_news_ && heard_in(word) == heard_in(applicant.word)) has_holder_died_ = true;
    is_news_ = false;
  }
  applicant.word = word;
  applicant.ticket = count_in(word) % 2 == 1 ? ++tickets_ : 0;
}

Status MutexManager::manage() {
  const std::size_t size = applicants_.size();
  // The order of requests that came between two calls isn't known. The scan starts at another place
  // each time, so that no member is always the first of them.
  const std::size_t first = tickets_ % size;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t place = (first + i) % size;
    Applicant& applicant = applicants_[place];
    if (const std::uint64_t word = word_from(place); word != applicant.word) note(place, word);
    if (applicant.ticket != 0 && !members_.is_present(place)) applicant.ticket = 0;
  }
  // A grant that was not sent needs no fence.
  const bool is_orphaned = holder_ != kNone && !members_.is_present(holder_);
  Status fenced = is_orphaned && is_grant_told_ ? fences_.require(members_, holder_) : Status::ok();
  if (fenced.is_error()) lost_ = std::move(fenced);
  if (lost_.is_error()) {
    refuse();
    return Status::ok();
  }
  if (is_orphaned && fenced.is_ok()) {
    holder_ = kNone;
    // A grant that was not sent doesn't count.
    has_holder_died_ = has_holder_died_ || is_grant_told_;
    is_news_ = false;
  }
  if (holder_ == kNone) {
    holder_ = next();
    is_grant_told_ = holder_ == kNone;
    if (holder_ != kNone) applicants_[holder_].ticket = 0;
  }
  return is_grant_told_ ? Status::ok() : grant();
}

// The member that has waited longest.
std::size_t MutexManager::next() const {
  std::size_t found = kNone;
  for (std::size_t place = 0; place < applicants_.size(); ++place) {
    const std::uint64_t ticket = applicants_[place].ticket;
    if (ticket != 0 && (found == kNone || ticket < applicants_[found].ticket)) found = place;
  }
  return found;
}

Status MutexManager::grant() {
  const std::uint64_t turn = turn_of(count_in(applicants_[holder_].word));
  if (holder_ == members_.self) {
    granted_ = turn;
    outcome_ = has_holder_died_ ? LockOutcome::kLockedAfterDeath : LockOutcome::kLocked;
  } else {
    transport::Notification grant;
    grant.id = members_.cell_at(holder_);
    grant.sequence = turn;
    grant.tag = has_holder_died_ ? kHolderDied : kPlain;
    Status status = members_.members[holder_].link->control().notify(grant, nullptr);
    if (status.code() == Code::kPeerDead) return Status::ok();  // the peer table will report it
    if (status.is_busy()) return status;
    if (!status.is_ok()) {
      // The lane has failed, so that this member can't be told, but others can.
      DUNLIN_WARN("mutex '{}': rank {} is passed over: {}", members_.name,
                  members_.members[holder_].rank.value(), status.to_string());
      holder_ = kNone;
      is_grant_told_ = true;
      return Status::ok();
    }
  }
  is_grant_told_ = true;
  is_news_ = has_holder_died_;
  has_holder_died_ = false;
  return Status::ok();
}

// Tells all members that wait that the mutex is lost.
void MutexManager::refuse() {
  for (std::size_t place = 0; place < applicants_.size(); ++place) {
    Applicant& applicant = applicants_[place];
    if (applicant.ticket == 0 || place == members_.self) continue;
    transport::Notification refusal;
    refusal.id = members_.cell_at(place);
    refusal.sequence = turn_of(count_in(applicant.word));
    refusal.tag = kLost;
    // It is told in the next call if the lane is busy. If the lane has failed, it can't be told.
    if (!members_.members[place].link->control().notify(refusal, nullptr).is_busy())
      applicant.ticket = 0;
  }
}

std::optional<Rank> MutexManager::fenced() const {
  const auto place = fences_.pending();
  return place ? std::optional(members_.members[*place].rank) : std::nullopt;
}

std::optional<Rank> MutexManager::awaited() const {
  const State now = state();
  if (is_at_owner_rank() || now == State::kIdle || now == State::kHeld) return std::nullopt;
  return members_.members[members_.owner_place].rank;
}

}  // namespace dunlin::collective
