// How the calls of a Router end, and what their neighbors hear of it.
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "collectives/neighbor/router.h"

namespace dunlin::collective::neighbor {

// A source waits if it has announced data that the failed call never asked for, or if not all data
// that were asked for have found room. A destination waits for data that this rank could not send.
void Router::decline(NeighborOperation& operation) {
  for (Delivery& delivery : operation.deliveries) {
    if (!std::exchange(delivery.has_failed, false)) continue;
    Header header;
    header.key = operation.key;
    header.sequence = delivery.sequence;
    reply(peer(*delivery.pair), header, Kind::kFailed);
  }
  for (Intake& intake : operation.intakes) {
    const bool is_announced = intake.is_known && intake.bytes > operation.most_eager();
    const bool has_all = intake.has_asked && intake.arrived == intake.bytes;
    if (!is_announced || has_all || std::exchange(intake.is_declined, true)) continue;
    Header header;
    header.key = operation.key;
    header.sequence = intake.sequence;
    reply(peer(*intake.pair), header, Kind::kUnwanted);
  }
}

void Router::reply(Peer& peer, Header header, Kind kind) {
  header.kind = kind;
  peer.replies.push_back(header);
  ++owed_;
}

void Router::flush(Peer& peer) {
  while (!peer.replies.empty()) {
    // No answer travels over a lane that has failed.
    if (peer.pair.messages->send(0, bytes_of(peer.replies.back())).is_busy()) return;
    peer.replies.pop_back();
    --owed_;
  }
}

void Router::hear(Peer& peer, CallId id) {
  std::uint32_t& last_heard = peer.heard[id.first];
  last_heard = std::max(last_heard, id.second);
  const auto first = peer.unheard.lower_bound({id.first, 0});
  const auto last = peer.unheard.upper_bound(id);
  owed_ -= static_cast<std::size_t>(std::distance(first, last));
  peer.unheard.erase(first, last);
}

void Router::look_for_owed_acknowledgments() {
  owes_acknowledgments_ = std::ranges::any_of(met_, [](const Peer* peer) {
    return peer->pair.is_connected() && (peer->pair.messages->owes_acknowledgments() ||
                                         peer->pair.chunks->owes_acknowledgments());
  });
}

void Router::forgive(Peer& peer) {
  owed_ -= peer.replies.size() + peer.unheard.size();
  peer.replies.clear();
  peer.unheard.clear();
}

void Router::give_back(NeighborOperation& operation) {
  for (Intake& intake : operation.intakes) give_back(operation, intake);
}

// The call behind takes over this call's number, the next one that call's, and so on. Until data
// have arrived or were asked for, the source has not bound a number to a call.
void Router::give_back(const NeighborOperation& operation, Intake& intake) {
  Peer& source = peer(*intake.pair);
  const auto is_open = [](const Intake& each) { return !each.is_known && !each.has_asked; };
  std::vector<Intake*> behind;
  bool is_movable = is_open(intake);
  for (const auto& [key, other] : active_) {
    if (key != operation.key) continue;
    for (Intake& each : other->intakes) {
      if (each.pair != intake.pair || each.sequence <= intake.sequence) continue;
      behind.push_back(&each);
      is_movable = is_movable && is_open(each);
    }
  }
  // A source sends in order: if a later part has arrived, it has skipped this one.
  const auto later = source.early.upper_bound({operation.key, intake.sequence});
  if (later != source.early.end() && later->first.first == operation.key) is_movable = false;
  if (!is_movable) return;
  for (Intake* const each : behind) --each->sequence;
  --source.received_calls[operation.key];
  intake.is_given_back = true;
}

void Router::end(std::uint64_t number) {
  const auto ended = operations_.find(number);
  if (ended->second.is_in_use()) {
    // The memory is the caller's from now on.
    options_.gpu->settle();
    for (Peer* const peer : met_) {
      if (peer->pair.is_connected()) peer->pair.chunks->progress();
    }
  }
  if (!ended->second.failure.is_ok()) {
    decline(ended->second);
    // The caller may not call the exchange again.
    for (Peer* const peer : met_) {
      if (peer->pair.is_connected()) flush(*peer);
    }
  }
  for (const Intake& intake : ended->second.intakes) {
    if (intake.is_heard || intake.is_given_back) continue;
    Peer& source = peer(*intake.pair);
    if (!fabric_.peers().is_present(source.pair.peer)) continue;
    if (intake.sequence <= source.heard[ended->second.key]) continue;
    if (source.unheard.insert({ended->second.key, intake.sequence}).second) ++owed_;
  }
  for (const Delivery& delivery : ended->second.deliveries) {
    peer(*delivery.pair).outbox.remove(ended->second);
  }
  std::erase_if(active_, [&](const auto& each) { return each.second == &ended->second; });
  operations_.erase(ended);
  look_for_owed_acknowledgments();
}

}  // namespace dunlin::collective::neighbor
