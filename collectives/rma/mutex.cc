#include "collectives/rma/mutex.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "collectives/rma/mutex_manager.h"
#include "collectives/rma/mutex_words.h"
#include "collectives/waiting/expiry.h"
#include "runtime/topology.h"

namespace dunlin::collective {

using transport::Awaited;
using State = MutexProtocol::State;

namespace {

// How long lock() waits after its deadline for its request to be withdrawn. Later progress() does
// it.
constexpr auto kWithdrawalTime = std::chrono::milliseconds(100);
// The shortest time between two interruptions of a wait.
constexpr Duration kShortestSleep = std::chrono::milliseconds(1);

Status check(const MutexOptions& options, Rank self) {
  const auto& members = options.membership.members;
  for (const Rank needed : {self, options.owner_rank}) {
    if (std::count(members.begin(), members.end(), needed) == 1) continue;
    return {Code::kInvalidArgument, fmt::format("mutex '{}': rank {} has to be a member, once",
                                                options.name, needed.value())};
  }
  return Status::ok();
}

std::size_t place_of(const std::vector<Rank>& members, Rank rank) {
  return static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) -
                                  members.begin());
}

}  // namespace

Result<std::unique_ptr<DistributedMutex>> DistributedMutex::prepare(transport::Fabric& fabric,
                                                                    MutexOptions options) {
  DUNLIN_TRY(check(options, fabric.rank()));
  std::unique_ptr<DistributedMutex> mutex(new DistributedMutex(fabric, std::move(options)));
  DUNLIN_TRY(mutex->allocate());
  return mutex;
}

DistributedMutex::DistributedMutex(transport::Fabric& fabric, MutexOptions options)
    : fabric_(fabric), options_(std::move(options)) {}

DistributedMutex::~DistributedMutex() {
  task_.reset();
  if (has_cells_) fabric_.board().free(cells_, options_.membership.members.size());
  if (is_published_) fabric_.bootstrap().release(topic(), options_.membership.members.size());
}

std::string DistributedMutex::topic() const {
  return fmt::format("mutex/{}/{}", options_.name, options_.membership.epoch);
}

Status DistributedMutex::allocate() {
  const std::size_t count = options_.membership.members.size();
  DUNLIN_ASSIGN(cells_, fabric_.board().allocate(count));
  has_cells_ = true;
  if (fabric_.rank() == options_.owner_rank) {
    DUNLIN_ASSIGN(words_, fabric_.allocate(MutexWords::bytes(count)));
  }
  DUNLIN_ASSIGN(transport::Link* const link, fabric_.link(options_.owner_rank));
  MutexOffer offer;
  offer.members = static_cast<std::uint32_t>(count);
  offer.owner_rank = options_.owner_rank;
  offer.first_cell = cells_;
  offer.wants_manager = options_.is_managed;
  offer.transport = fabric_.transport_of(options_.owner_rank);
  if (MutexWords::is_possible(link->data())) offer.scope = link->data().atomics()->scope();
  offer.host = host_identity(fabric_.config().host_id);
  if (words_) offer.words = words_->descriptor();
  DUNLIN_TRY(
      fabric_.bootstrap().publish(Bootstrap::key_of(topic(), fabric_.rank()), offer.encode()));
  is_published_ = true;
  return Status::ok();
}

Result<MutexOffer> DistributedMutex::parse(Rank rank, std::span<const std::byte> bytes) const {
  auto offer = MutexOffer::decode(bytes);
  if (!offer) return std::move(offer).status().with_peer(rank);
  if (offer->members != options_.membership.members.size() ||
      offer->owner_rank != options_.owner_rank || offer->wants_manager != options_.is_managed) {
    return Status(
               Code::kInvalidArgument,
               fmt::format(
                   "mutex '{}': {} members and owner rank {} there, {} and {} here{}",
                   options_.name, offer->members, offer->owner_rank.value(),
                   options_.membership.members.size(), options_.owner_rank.value(),
                   offer->wants_manager != options_.is_managed ? "; managed on one side only" : ""))
        .with_peer(rank);
  }
  return offer;
}

Status DistributedMutex::connect() {
  const std::vector<Rank>& ranks = options_.membership.members;
  MutexMembers members{fabric_,
                       options_.name,
                       {},
                       place_of(ranks, fabric_.rank()),
                       place_of(ranks, options_.owner_rank)};
  bool is_system_wide = true;
  bool is_one_transport = true;
  std::string transport;
  Bytes words;
  std::vector<bool> is_local;
  const std::string host = host_identity(fabric_.config().host_id);
  auto offers = fabric_.bootstrap().lookup_each(topic(), ranks, fabric_.config().deadline);
  if (!offers) return std::move(offers).status().with_context("waiting for a member of a mutex");
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    DUNLIN_ASSIGN(MutexOffer offer, parse(ranks[place], (*offers)[place]));
    members.members.push_back({ranks[place], offer.first_cell, nullptr});
    is_local.push_back(offer.host == host);
    if (place == 0) transport = offer.transport;
    is_system_wide = is_system_wide && offer.scope == transport::AtomicScope::kSystem;
    is_one_transport = is_one_transport && offer.scope && offer.transport == transport;
    if (place == members.owner_place) words = std::move(offer.words);
  }
  // All members decide alike, since they decide by the same offers.
  const bool is_managed = options_.is_managed || !(is_system_wide || is_one_transport);
  const auto is_needed = [&](std::size_t place) {
    // A member on this host may have our memory mapped. Only a link to it tells its process, whose
    // end has to be seen before its mutex may pass on (Transport::revoke).
    return !is_managed || is_local[place] || place == members.owner_place ||
           members.self == members.owner_place;
  };
  std::vector<Rank> peers;
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    if (is_needed(place)) peers.push_back(ranks[place]);
  }
  DUNLIN_TRY(fabric_.fetch_addresses(peers, fabric_.config().deadline));
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    if (!is_needed(place)) continue;
    DUNLIN_ASSIGN(members.members[place].link, fabric_.link(ranks[place]));
  }
  if (is_managed) {
    protocol_ = std::make_unique<MutexManager>(std::move(members));
  } else {
    DUNLIN_ASSIGN(auto imported, fabric_.import_region(options_.owner_rank, words));
    DUNLIN_ASSIGN(protocol_, MutexWords::create(std::move(members), std::move(imported)));
  }
  // The protocol keeps its first error, which the caller's next call returns.
  task_.emplace(fabric_, [this] { (void)progress(); });
  return Status::ok();
}

Status DistributedMutex::check_standing() const {
  const Fences& fences = fabric_.bootstrap().fences();
  if (!fences.is_cut_off()) return Status::ok();
  return fences.check().with_context(
      fmt::format("mutex '{}' is lost to rank {}", options_.name, fabric_.rank().value()));
}

Status DistributedMutex::start() {
  DUNLIN_TRY(check_standing());
  DUNLIN_TRY(protocol_->progress());
  if (protocol_->state() == State::kReleasing) return Status::busy();
  if (protocol_->state() != State::kIdle) {
    return {Code::kInvalidArgument,
            fmt::format("mutex '{}': rank {} {} it already", options_.name, fabric_.rank().value(),
                        is_held() ? "holds" : "is locking")};
  }
  has_heard_ = false;
  protocol_->want();
  return protocol_->progress();
}

Result<LockOutcome> DistributedMutex::test() {
  DUNLIN_TRY(check_standing());
  DUNLIN_TRY(protocol_->progress());
  if (protocol_->state() == State::kHeld) {
    has_heard_ = true;
    return protocol_->outcome();
  }
  if (protocol_->state() == State::kWaiting) return Status::busy();
  return Status(Code::kInvalidArgument, fmt::format("mutex '{}': rank {} has not begun to lock it",
                                                    options_.name, fabric_.rank().value()));
}

Status DistributedMutex::cancel() {
  DUNLIN_TRY(check_standing());
  if (protocol_->state() != State::kWaiting && !is_held()) {
    return {Code::kInvalidArgument, fmt::format("mutex '{}': rank {} has no request to withdraw",
                                                options_.name, fabric_.rank().value())};
  }
  // It may have been granted after the death of a holder, of which the next one has to hear then.
  constexpr bool kHasHeard = false;
  protocol_->release(kHasHeard);
  return protocol_->progress();
}

Status DistributedMutex::start_unlock() {
  DUNLIN_TRY(check_standing());
  if (!is_held()) {
    return {Code::kInvalidArgument, fmt::format("mutex '{}': rank {} does not hold it",
                                                options_.name, fabric_.rank().value())};
  }
  protocol_->release(has_heard_);
  return protocol_->progress();
}

Status DistributedMutex::test_unlock() {
  DUNLIN_TRY(check_standing());
  DUNLIN_TRY(protocol_->progress());
  return protocol_->state() == State::kReleasing ? Status::busy() : Status::ok();
}

Status DistributedMutex::progress() {
  DUNLIN_TRY(check_standing());
  return protocol_->progress();
}

bool DistributedMutex::is_held() const {
  return protocol_->state() == State::kHeld && !fabric_.bootstrap().fences().is_cut_off();
}

bool DistributedMutex::needs_progress() const {
  return !protocol_->is_quiet();
}

bool DistributedMutex::is_managed() const {
  return protocol_->is_managed();
}

std::vector<Awaited> DistributedMutex::awaited() const {
  const std::optional<Rank> rank = protocol_->awaited();
  if (!rank) return {};
  std::string what =
      fmt::format("mutex '{}'{}", options_.name, is_managed() ? ", its manager" : "");
  if (const auto gone = protocol_->fenced())
    what += fmt::format(", until all members have shut out rank {}", gone->value());
  return {{*rank, std::move(what)}};
}

// Fabric::wait(), interrupted whenever the protocol's next_event() is due.
template <typename Ready>
Status DistributedMutex::wait(Ready&& ready, Duration timeout) {
  const TimePoint deadline = fabric_.clock().now() + timeout;
  for (;;) {
    const Duration left = deadline - fabric_.clock().now();
    const auto event = protocol_->next_event();
    const Duration nap =
        event ? std::max(*event - fabric_.clock().now(), kShortestSleep) : Duration::max();
    bool has_event = false;  // next_event() has a time since the wait began
    Status status = fabric_.wait(
        [&]() -> Status {
          Status outcome = ready();
          has_event = outcome.is_busy() && !event && protocol_->next_event();
          return has_event ? Status::ok() : std::move(outcome);
        },
        [this] { return awaited(); }, std::min(nap, left));
    if (!has_event && !(is_expiry(status) && nap < left)) return status;
  }
}

Result<LockOutcome> DistributedMutex::lock(Duration timeout) {
  bool is_started = false;
  std::optional<LockOutcome> outcome;
  Status status = wait(
      [&]() -> Status {
        if (!is_started) {
          DUNLIN_TRY(start());
          is_started = true;
        }
        DUNLIN_ASSIGN(outcome, test());
        return Status::ok();
      },
      timeout);
  if (status.is_ok()) return *outcome;
  if (is_started && protocol_->state() == State::kWaiting && cancel().is_ok())
    (void)wait([this] { return test_unlock(); }, kWithdrawalTime);
  return status;
}

Status DistributedMutex::unlock(Duration timeout) {
  DUNLIN_TRY(start_unlock());
  return wait([this] { return test_unlock(); }, timeout);
}

}  // namespace dunlin::collective
