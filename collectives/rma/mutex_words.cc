#include "collectives/rma/mutex_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace dunlin::collective {

using transport::RemoteSlice;

// Memory and completion that the lane may still access after this object is gone.
struct MutexWords::LaneState final : transport::KeptUntilDone {
  std::unique_ptr<transport::RemoteRegion> words;
  RemoteSlice holder;
  RemoteSlice tickets;
  RemoteSlice requests;                          // of all members
  std::vector<RemoteSlice> request_of;           // by place
  std::unique_ptr<transport::LocalRegion> copy;  // of the requests; may be longer than they are
  transport::LocalSlice copied;
  transport::Completion completion;
  std::uint64_t before = 0;
  bool is_posted = false;

  bool is_done() const override { return !is_posted || completion.is_done(); }
  std::span<std::uint64_t> copies() const {
    return {reinterpret_cast<std::uint64_t*>(copy->data()), request_of.size()};
  }
};

Result<std::unique_ptr<MutexWords>> MutexWords::create(
    MutexMembers members, std::unique_ptr<transport::RemoteRegion> words) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  auto state = std::make_unique<LaneState>();
  const std::size_t count = members.members.size();
  DUNLIN_ASSIGN(state->holder, words->slice(0, kWord));
  DUNLIN_ASSIGN(state->tickets, words->slice(kTicketsAt, kWord));
  DUNLIN_ASSIGN(state->requests, words->slice(kRequestsAt, count * kWord));
  for (std::size_t place = 0; place < count; ++place) {
    DUNLIN_ASSIGN(const RemoteSlice request, state->requests.slice(place * kWord, kWord));
    state->request_of.push_back(request);
  }
  DUNLIN_ASSIGN(state->copy, members.fabric.allocate(count * kWord));
  DUNLIN_ASSIGN(state->copied, state->copy->slice(0, count * kWord));
  state->words = std::move(words);
  return std::unique_ptr<MutexWords>(new MutexWords(std::move(members), std::move(state)));
}

MutexWords::MutexWords(MutexMembers members, std::unique_ptr<LaneState> state)
    : members_(std::move(members)),
      fences_(members_),
      lane_(members_.members[members_.owner_place].link->data()),
      lane_state_(std::move(state)) {}

MutexWords::~MutexWords() {
  if (!lane_state_->is_done()) members_.fabric.keep_until_done(std::move(lane_state_));
}

// Whether the phase is one of those of locking.
bool MutexWords::is_locking() const {
  switch (phase_) {
    case Phase::kTry:
    case Phase::kDraw:
    case Phase::kRequest:
    case Phase::kTake:
    case Phase::kTakeOver:
    case Phase::kWait:
    case Phase::kSettle:
    case Phase::kClear:
      return true;
    default:
      return false;
  }
}

MutexProtocol::State MutexWords::state() const {
  if (phase_ == Phase::kSettle && is_unwanted_) return State::kIdle;
  if (is_locking()) return is_unwanted_ ? State::kReleasing : State::kWaiting;
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kClaimed:
      return State::kIdle;
    case Phase::kHeld:
      return State::kHeld;
    case Phase::kLookClaimed:
      return is_unwanted_ ? State::kIdle : State::kWaiting;
    default:
      return State::kReleasing;
  }
}

void MutexWords::want() {
  is_unwanted_ = false;
  if (phase_ == Phase::kIdle) phase_ = Phase::kTry;
  // The grant that is due for the last request serves for this one; its ticket is lower than any
  // new one.
  if (phase_ == Phase::kClaimed) phase_ = Phase::kWait;
}

void MutexWords::release(bool has_heard) {
  is_unwanted_ = true;
  if (phase_ != Phase::kHeld) return;
  is_unheard_ = !has_heard && outcome_ == LockOutcome::kLockedAfterDeath;
  phase_ = Phase::kScan;
}

Status MutexWords::progress() {
  if (error_.is_error()) return error_;
  Status status;
  while (status.is_ok()) status = step();
  if (status.is_busy()) return Status::ok();
  return error_ = std::move(status);
}

Status MutexWords::step() {
  if (is_locking()) return step_lock();
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kHeld:
      return Status::busy();
    case Phase::kWithdraw:
    case Phase::kClaimed:
    case Phase::kLookClaimed:
      return step_withdrawal();
    default:
      return step_unlock();
  }
}

Status MutexWords::step_lock() {
  switch (phase_) {
    case Phase::kTry:
      DUNLIN_TRY(compare_swap_surely(lane_state_->holder, 0, own()));
      if (before() == 0) {
        got(own());
        return Status::ok();
      }
      return go(is_unwanted_ ? Phase::kIdle : Phase::kDraw);
    case Phase::kDraw:
      DUNLIN_TRY(fetch_add(lane_state_->tickets, 1));
      ticket_ = before() + 1;
      return go(is_unwanted_ ? Phase::kIdle : Phase::kRequest);
    case Phase::kRequest:
      return request();
    case Phase::kTake:
      return take(0, LockOutcome::kLocked);
    case Phase::kTakeOver:
      return take(seen_holder_, LockOutcome::kLockedAfterDeath);
    case Phase::kWait:
      return wait();
    case Phase::kSettle:
      return settle();
    default:  // kClear
      DUNLIN_TRY(compare_swap_surely(lane_state_->request_of[members_.self], ticket_, 0));
      is_requested_ = false;
      proceed();
      return Status::ok();
  }
}

Status MutexWords::request() {
  DUNLIN_TRY(compare_swap(lane_state_->request_of[members_.self], 0, ticket_));
  if (is_read_back_ && before() == 0)
    return is_requested_ ? go(Phase::kRequest) : begin_to_settle();
  // The request was written before, and was gone now, as far as we know: it was claimed.
  if (is_requested_ && (before() == 0 || is_read_back_)) is_claimed_ = is_reasserted_ = true;
  is_requested_ = true;
  return go(Phase::kTake);
}

Status MutexWords::take(std::uint64_t expected, LockOutcome outcome) {
  DUNLIN_TRY(compare_swap_surely(lane_state_->holder, expected, own()));
  // The mutex was handed over to this rank already; the notification is on its way, or lost.
  if (before() == expected) {
    got(own(), outcome);
    return Status::ok();
  }
  if (is_own(before())) {
    got(before());
    return Status::ok();
  }
  seen_holder_ = before();
  if (seen_holder_ == 0) return go(Phase::kTake);
  const std::uint64_t holder = seen_holder_ & ~kUnheard;
  if (holder > members_.members.size()) {
    return {Code::kCorrupted, fmt::format("the word of a mutex names member {} of {}", holder,
                                          members_.members.size())};
  }
  const bool has_live_holder = holder != 0 && members_.is_present(holder - 1);
  if (has_live_holder) return go(Phase::kWait);
  if (holder != 0) {
    Status fenced = fences_.require(members_, holder - 1);
    if (fenced.is_busy()) return go(Phase::kWait);  // which goes on looking, as a member is gone
    DUNLIN_TRY(std::move(fenced));
  }
  return go(Phase::kTakeOver);
}

void MutexWords::got(std::uint64_t word, LockOutcome outcome) {
  held_word_ = word;
  outcome_ = outcome;
  // The request has to be removed from the words before the caller gets the mutex.
  if (is_requested_) {
    phase_ = Phase::kClear;
  } else {
    proceed();
  }
}

void MutexWords::proceed() {
  is_claimed_ = is_reasserted_ = false;
  phase_ = is_unwanted_ ? Phase::kScan : Phase::kHeld;
  is_unheard_ = is_unwanted_ && outcome_ == LockOutcome::kLockedAfterDeath;
}

Status MutexWords::wait() {
  const Ticket ticket = look_up_ticket();
  if (ticket.state == TicketState::kGranted) {
    is_requested_ = is_reasserted_;
    got(ticket.holder);
    return Status::ok();
  }
  if (is_unwanted_) return go(Phase::kWithdraw);
  if (ticket.state == TicketState::kVoid && !is_reasserted_) return begin_to_settle();
  DUNLIN_TRY(members_.fabric.peers().check(members_.members[members_.owner_place].rank));
  return is_time_to_look() ? go(Phase::kRequest) : Status::busy();
}

Status MutexWords::begin_to_settle() {
  is_requested_ = is_claimed_ = is_reasserted_ = false;
  settled_from_.reset();
  return go(Phase::kSettle);
}

// Takes the mutex if it is free: then no rank has claimed the request.
Status MutexWords::settle() {
  const TimePoint now = members_.fabric.clock().now();
  if (settled_from_ && !lane_state_->is_posted && now < looked_at_ + kLookInterval)
    return Status::busy();
  DUNLIN_TRY(compare_swap_surely(lane_state_->holder, 0, own()));
  if (before() == 0 || is_own(before())) {
    got(before() == 0 ? own() : before());
    return Status::ok();
  }
  const std::uint64_t holder = before() & ~kUnheard;
  const bool is_gone = holder != 0 && !members_.is_present(holder - 1);
  if (holder != 0 && !is_gone && (!settled_from_ || *settled_from_ == before())) {
    settled_from_ = before();
    looked_at_ = now;
    return Status::busy();
  }
  // What a holder that is gone had begun may still happen. kClaimed goes on looking.
  if (is_gone && is_unwanted_) return go(Phase::kClaimed);
  return go(is_unwanted_ ? Phase::kIdle : Phase::kDraw);
}

// Tickets are never used again after their grant, so a late notification has no effect.
MutexWords::Ticket MutexWords::look_up_ticket() const {
  const transport::NotifyBoard& board = members_.fabric.board();
  Ticket found;
  for (std::size_t place = 0; place < members_.members.size(); ++place) {
    const transport::NotifyId cell = members_.cell_of(place);
    if (board.sequence(cell) != ticket_) continue;
    const std::uint64_t tag = board.cell(cell).tag;
    if (tag != kVoidTag) return {TicketState::kGranted, own() | tag};
    found.state = TicketState::kVoid;
  }
  return found;
}

bool MutexWords::is_time_to_look() {
  const PeerTable& peers = members_.fabric.peers();
  bool is_news = false;
  if (peers.version() != peers_seen_) {
    peers_seen_ = peers.version();
    for (std::size_t place = 0; place < members_.members.size() && !is_news; ++place)
      is_news = !members_.is_present(place);
    is_member_gone_ = is_news;
  }
  if (!is_member_gone_) return false;
  const TimePoint now = members_.fabric.clock().now();
  if (!is_news && now < looked_at_ + kLookInterval) return false;
  looked_at_ = now;
  return true;
}

Status MutexWords::step_withdrawal() {
  switch (phase_) {
    case Phase::kWithdraw:
      return withdraw();
    case Phase::kClaimed: {
      const Ticket ticket = look_up_ticket();
      if (ticket.state == TicketState::kGranted) {
        is_requested_ = false;
        got(ticket.holder);
        return Status::ok();
      }
      if (ticket.state == TicketState::kVoid) return begin_to_settle();
      return is_time_to_look() ? go(Phase::kLookClaimed) : Status::busy();
    }
    default:  // kLookClaimed
      DUNLIN_TRY(fetch_add(lane_state_->holder, 0));
      if (is_own(before())) {
        is_requested_ = false;
        got(before());
        return Status::ok();
      }
      phase_ = is_unwanted_ ? Phase::kClaimed : Phase::kWait;
      return Status::busy();
  }
}

Status MutexWords::withdraw() {
  DUNLIN_TRY(compare_swap(lane_state_->request_of[members_.self], ticket_, 0));
  if (is_read_back_ && before() == ticket_) return go(Phase::kWithdraw);
  is_reasserted_ = false;
  if (is_read_back_ && !is_claimed_) return begin_to_settle();
  if (before() != ticket_) is_claimed_ = true;
  if (is_claimed_) return go(is_unwanted_ ? Phase::kClaimed : Phase::kWait);
  is_requested_ = false;
  return go(Phase::kIdle);
}

Status MutexWords::step_unlock() {
  switch (phase_) {
    case Phase::kScan:
      return scan(Phase::kClaim, Phase::kFree);
    case Phase::kClaim:
      DUNLIN_TRY(compare_swap(lane_state_->request_of[next_], next_ticket_, 0));
      if (is_read_back_) return go(before() == 0 ? Phase::kVoid : Phase::kScan);
      return go(before() == next_ticket_ ? Phase::kHandOver : Phase::kScan);
    case Phase::kVoid:
      DUNLIN_TRY(notify_next(kVoidTag));
      return go(Phase::kScan);
    case Phase::kHandOver:
    case Phase::kFree: {
      const bool is_free = phase_ == Phase::kFree;
      DUNLIN_TRY(
          compare_swap_surely(lane_state_->holder, held_word_, (is_free ? 0 : next_ + 1) | news()));
      // Only its holder changes the word, as long as it is alive. So a word that has changed since
      // was changed by this operation first.
      if (before() == held_word_ || is_read_back_)
        return go(is_free ? Phase::kScanAgain : Phase::kNotify);
      return {
          Code::kInternal,
          fmt::format("mutex '{}': rank {} unlocks it, but it was taken from it; holder word {}",
                      members_.name, members_.fabric.rank().value(), before())};
    }
    case Phase::kNotify:
      DUNLIN_TRY(notify_next(news()));
      return go(Phase::kIdle);
    case Phase::kScanAgain:
      return scan(Phase::kTakeBack, Phase::kIdle);
    default:  // kTakeBack
      DUNLIN_TRY(compare_swap_surely(lane_state_->holder, news(), own()));
      held_word_ = own();
      // Otherwise another member holds the mutex, and will find the request when it unlocks.
      return go(before() == news() ? Phase::kScan : Phase::kIdle);
  }
}

Status MutexWords::scan(Phase if_found, Phase if_none) {
  const std::span<std::uint64_t> copies = lane_state_->copies();
  if (std::byte* const mapped = lane_state_->words->mapped(); mapped != nullptr) {
    DUNLIN_TRY(members_.fabric.peers().check(members_.members[members_.owner_place].rank));
    auto* const requests = reinterpret_cast<std::uint64_t*>(mapped + kRequestsAt);
    for (std::size_t place = 0; place < copies.size(); ++place)
      copies[place] = std::atomic_ref(requests[place]).load();
  } else {
    DUNLIN_TRY(carry_out([&](transport::Completion* completion) {
      return lane_.reads()->get(lane_state_->requests, lane_state_->copied, completion);
    }));
  }
  next_ = kNone;
  for (std::size_t place = 0; place < copies.size(); ++place) {
    const std::uint64_t ticket = copies[place];
    if (ticket == 0 || place == members_.self || !members_.is_present(place)) continue;
    if (next_ != kNone && next_ticket_ < ticket) continue;
    next_ = place;
    next_ticket_ = ticket;
  }
  return go(next_ == kNone ? if_none : if_found);
}

Status MutexWords::notify_next(std::uint64_t tag) {
  transport::Notification grant;
  grant.id = members_.cell_at(next_);
  grant.sequence = next_ticket_;
  grant.tag = tag;
  Status status = members_.members[next_].link->control().notify(grant, nullptr);
  // The waiting members will take the mutex from the dead one.
  return status.code() == Code::kPeerDead ? Status::ok() : std::move(status);
}

template <typename Post>
Status MutexWords::carry_out(Post&& post) {
  if (!lane_state_->is_posted) {
    lane_state_->completion.reset();
    DUNLIN_TRY(post(&lane_state_->completion));
    lane_state_->is_posted = true;
  }
  if (!lane_state_->completion.is_done()) return Status::busy();
  lane_state_->is_posted = false;
  return lane_state_->completion.status();
}

Status MutexWords::compare_swap(const RemoteSlice& word, std::uint64_t expected,
                                std::uint64_t desired) {
  if (!is_reading_back_) {
    Status status = carry_out([&](transport::Completion* completion) {
      return lane_.atomics()->compare_swap(word, expected, desired, &lane_state_->before,
                                           completion);
    });
    is_read_back_ = false;
    if (status.code() != Code::kIoError) return status;
    is_reading_back_ = true;
  }
  DUNLIN_TRY(fetch_add(word, 0));
  is_reading_back_ = false;
  is_read_back_ = true;
  return Status::ok();
}

Status MutexWords::compare_swap_surely(const RemoteSlice& word, std::uint64_t expected,
                                       std::uint64_t desired) {
  do {
    DUNLIN_TRY(compare_swap(word, expected, desired));
  } while (is_read_back_ && before() == expected);
  if (is_read_back_ && before() == desired) lane_state_->before = expected;
  return Status::ok();
}

Status MutexWords::fetch_add(const RemoteSlice& word, std::uint64_t operand) {
  Status status;
  do {
    status = carry_out([&](transport::Completion* completion) {
      return lane_.atomics()->fetch_add(word, operand, &lane_state_->before, completion);
    });
  } while (status.code() == Code::kIoError);
  return status;
}

std::uint64_t MutexWords::before() const {
  return lane_state_->before;
}

std::optional<Rank> MutexWords::awaited() const {
  if (state() == State::kIdle || state() == State::kHeld) return std::nullopt;
  return members_.members[members_.owner_place].rank;
}

std::optional<Rank> MutexWords::fenced() const {
  const auto place = fences_.pending();
  return place ? std::optional(members_.members[*place].rank) : std::nullopt;
}

std::optional<TimePoint> MutexWords::next_event() const {
  const bool is_watching = (phase_ == Phase::kWait && is_member_gone_) || phase_ == Phase::kSettle;
  return is_watching ? std::optional(looked_at_ + kLookInterval) : std::nullopt;
}

}  // namespace dunlin::collective
