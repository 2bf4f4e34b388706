#include "collectives/neighbor/router.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/fnv.h"
#include "runtime/log.h"

namespace dunlin::collective::neighbor {
namespace {

// How many bytes of one peer may wait for calls that were not made yet. Then the peer has to wait.
constexpr std::size_t kMostEarlyBytes = std::size_t{16} << 20;

}  // namespace

Router::~Router() {
  if (options_.gpu != nullptr) options_.gpu->settle();
  for (Peer* const peer : met_) {
    peer->pair.chunks->abandon();
    for (auto* const ring : {&peer->pair.messages, &peer->pair.chunks}) {
      if (!(*ring)->is_done()) fabric_.keep_until_done(std::move(*ring));
    }
  }
}

Result<Router::Peer*> Router::peer(Rank rank) {
  std::unique_ptr<Peer>& found = peers_[rank.index()];
  if (found == nullptr) found = std::make_unique<Peer>(options_.fusion_threshold);
  Pair& pair = found->pair;
  pair.peer = rank;
  // A failed attempt may have published one of the rings already.
  if (pair.messages == nullptr) {
    DUNLIN_ASSIGN(pair.messages, Ring::prepare(fabric_, {options_.name + "/messages", rank,
                                                         kMessageBytes, kMessageDepth}));
  }
  if (pair.chunks == nullptr) {
    DUNLIN_ASSIGN(pair.chunks,
                  Ring::prepare(fabric_, {options_.name + "/chunks", rank, options_.slot_bytes,
                                          options_.depth, options_.gpu.get()}));
    met_.push_back(found.get());
  }
  return found.get();
}

Result<std::uint64_t> Router::add(const NeighborCall& call, std::vector<Bytes>* gathered) {
  for (const auto* ranks : {&call.sources, &call.destinations}) {
    for (const WeightedRank& each : *ranks) DUNLIN_TRY(peer(each.rank).status());
  }
  const std::uint64_t number = ++last_number_;
  NeighborOperation& operation = operations_[number];
  operation.name = call.name;
  operation.key = hash_of(call.name);
  operation.type = call.type;
  operation.is_reduction = gathered == nullptr;
  operation.layout = call.layout;
  operation.input = static_cast<const std::byte*>(call.input);
  operation.output = static_cast<std::byte*>(call.output);
  operation.bytes = call.count * size_of(call.type);
  operation.self_weight = call.self_weight;
  if (gathered == nullptr) operation.on_death = call.on_death;
  operation.gathered = gathered;
  operation.gpu = options_.gpu.get();
  if (gathered != nullptr) gathered->assign(call.sources.size(), {});
  active_.emplace_back(operation.key, &operation);
  // Reserved here, since outboxes refer to the deliveries.
  operation.deliveries.reserve(call.destinations.size());

  for (const WeightedRank& to : clockwise(call.destinations, fabric_.rank(), fabric_.size())) {
    Peer& peer = *peers_[to.rank.index()];
    Delivery& delivery = operation.deliveries.emplace_back();
    delivery.pair = &peer.pair;
    delivery.weight = to.weight;
    delivery.sequence = ++peer.sent_calls[operation.key];
    if (!peer.outbox.is_empty() && !peer.outbox.has_room(operation)) send_first(peer);
    peer.outbox.add(operation, delivery);
  }
  for (const WeightedRank& from : call.sources) {
    Peer& peer = *peers_[from.rank.index()];
    Intake& intake = operation.intakes.emplace_back();
    intake.pair = &peer.pair;
    intake.weight = from.weight;
    intake.element = size_of(call.type);
    intake.expected = operation.is_reduction ? operation.bytes : SIZE_MAX;
    intake.sequence = ++peer.received_calls[operation.key];
    if (!operation.is_small() && operation.is_reduction) intake.token = ++last_token_;
  }
  catch_up(operation);
  return number;
}

bool Router::can_wait(std::uint64_t number) {
  const NeighborOperation* const operation = find(number);
  // If no other header fits beside it, it travels alone anyway. Calls that are over count until
  // their caller was told, so a late rank, which has all its data at once, fuses as the others do.
  return operation->is_small() && operations_.size() > 1 &&
         operation->first_bytes() + sizeof(Header) <= options_.fusion_threshold;
}

Status Router::begin_seeking(std::string_view name, std::span<const Rank> ranks) {
  for (const Rank rank : ranks) DUNLIN_TRY(peer(rank).status());
  for (const Rank rank : ranks) ++peers_[rank.index()]->sought[hash_of(name)];
  return Status::ok();
}

void Router::end_seeking(std::string_view name, std::span<const Rank> ranks) {
  for (const Rank rank : ranks) {
    auto& sought = peers_[rank.index()]->sought;
    const auto found = sought.find(hash_of(name));
    if (--found->second == 0) sought.erase(found);
  }
}

bool Router::has_arrived(std::string_view name, Rank source) const {
  const std::unique_ptr<Peer>& peer = peers_[source.index()];
  return peer != nullptr && has_next(*peer, hash_of(name));
}

bool Router::has_next(const Peer& peer, std::uint64_t key) {
  const auto calls = peer.received_calls.find(key);
  const std::uint32_t next = calls == peer.received_calls.end() ? 1 : calls->second + 1;
  return peer.early.contains({key, next});
}

bool Router::is_sought(const Peer& peer) {
  return std::any_of(peer.sought.begin(), peer.sought.end(),
                     [&](const auto& each) { return !has_next(peer, each.first); });
}

void Router::catch_up(NeighborOperation& operation) {
  for (Intake& intake : operation.intakes) {
    Peer& source = peer(*intake.pair);
    const auto early = source.early.find({operation.key, intake.sequence});
    if (early == source.early.end()) continue;
    Early came = std::move(early->second);
    source.early.erase(early);
    source.early_bytes -= came.moved.size();
    arrive(operation, intake, std::move(came), 0);
  }
  for (Delivery& delivery : operation.deliveries) {
    Peer& target = peer(*delivery.pair);
    const auto wanted = target.wanted.find({operation.key, delivery.sequence});
    if (wanted == target.wanted.end()) continue;
    delivery.token = wanted->second.token;
    target.asked.push_back(wanted->first);
    target.wanted.erase(wanted);
  }
}

std::pair<NeighborOperation*, Intake*> Router::find_intake(const Peer& peer, CallId id) {
  for (const auto& [key, operation] : active_) {
    if (key != id.first) continue;
    for (Intake& intake : operation->intakes) {
      if (intake.is_lost) continue;
      if (intake.pair == &peer.pair && intake.sequence == id.second) return {operation, &intake};
    }
  }
  return {nullptr, nullptr};
}

std::pair<NeighborOperation*, Delivery*> Router::find_delivery(const Peer& peer, CallId id) {
  for (const auto& [key, operation] : active_) {
    if (key != id.first) continue;
    for (Delivery& delivery : operation->deliveries) {
      if (delivery.pair == &peer.pair && delivery.sequence == id.second) {
        return {operation, &delivery};
      }
    }
  }
  return {nullptr, nullptr};
}

void Router::arrive(NeighborOperation& operation, Intake& intake, Early came,
                    std::uint64_t sequence) {
  Peer& source = peer(*intake.pair);
  intake.is_heard = true;
  if (came.header.kind == Kind::kFailed) {
    return operation.fail(Status(Code::kIoError, fmt::format("'{}' {}: the neighbor's GPU has "
                                                             "failed, and its data will not come",
                                                             operation.name, intake.sequence))
                              .with_peer(source.pair.peer));
  }
  if (!operation.failure.is_ok()) {
    if (came.header.kind == Kind::kAnnounce) reply(source, came.header, Kind::kUnwanted);
  } else if (Status status = operation.accept(intake, came.header); !status.is_ok()) {
    operation.fail(std::move(status));
    reply(source, came.header, Kind::kReject);
  }
  const bool has_data = came.header.kind == Kind::kEager && came.header.bytes > 0;
  if (!operation.failure.is_ok() || !has_data) {
    if (came.header.kind == Kind::kAnnounce && intake.token == 0) intake.token = ++last_token_;
    return;
  }
  Piece& piece = intake.pieces.emplace_back();
  piece.ring = sequence == 0 ? nullptr : intake.pair->messages.get();
  piece.sequence = sequence;
  if (sequence != 0) piece.ring->hold(sequence);
  piece.moved = std::move(came.moved);
  piece.bytes = sequence != 0 ? came.bytes : std::span<const std::byte>(piece.moved);
  intake.arrived = piece.bytes.size();
}

void Router::want(Peer& peer, const Header& header) {
  const CallId id{header.key, header.sequence};
  if (const auto [operation, delivery] = find_delivery(peer, id); operation != nullptr) {
    delivery->token = header.token;
    peer.asked.push_back(id);
  } else if (header.sequence > peer.sent_calls[header.key]) {
    peer.wanted.emplace(id, header);  // for a call that was not made yet
  }
}

// Asks the source for its chunks.
void Router::ask(NeighborOperation& operation, Intake& intake) {
  if (intake.token == 0 || intake.has_asked || !intake.pair->is_connected()) return;
  Header header;
  header.key = operation.key;
  header.sequence = intake.sequence;
  header.token = intake.token;
  header.bytes = operation.bytes;
  header.kind = Kind::kReady;
  header.type = static_cast<std::uint8_t>(operation.type);
  header.is_reduction = operation.is_reduction ? 1 : 0;
  intake.has_asked = intake.pair->messages->send(0, bytes_of(header)).is_ok();
}

void Router::take_chunk(Peer& peer, const transport::Message& message) {
  for (const auto& [key, operation] : active_) {
    for (Intake& intake : operation->intakes) {
      if (intake.token != message.tag || intake.pair != &peer.pair) continue;
      if (!operation->failure.is_ok() || !intake.fits(message.data.size())) continue;
      Piece& piece = intake.pieces.emplace_back();
      piece.bytes = message.data;
      piece.ring = peer.pair.chunks.get();
      piece.sequence = message.sequence;
      intake.arrived += message.data.size();
      return;
    }
  }
  peer.pair.chunks->release(message.sequence);  // for a call that was canceled or has failed
}

void Router::dispatch(Peer& peer, const transport::Message& message) {
  if (Status status = check_frame(message.data); status.is_ok()) {
    for (std::span<const std::byte> rest = message.data; !rest.empty();) {
      take(peer, take_part(rest), message.sequence);
    }
  } else {
    // It can't be known which calls the message was for.
    status = std::move(status).with_peer(peer.pair.peer);
    DUNLIN_WARN("{}", status.to_string());
    fail_with(peer, status);
  }
  // Calls that have yet to take in their part hold the slot by themselves.
  peer.pair.messages->release(message.sequence);
}

void Router::take(Peer& peer, const Part& part, std::uint64_t sequence) {
  const Header& header = part.header;
  const CallId id{header.key, header.sequence};
  switch (header.kind) {
    case Kind::kReady:
      want(peer, header);
      break;
    case Kind::kUnwanted:
      if (const auto [operation, delivery] = find_delivery(peer, id); operation != nullptr) {
        delivery->is_over = true;
      }
      break;
    case Kind::kReject:
      if (const auto [operation, delivery] = find_delivery(peer, id); operation != nullptr) {
        delivery->is_over = true;
        operation->fail(Status(Code::kInvalidArgument,
                               fmt::format("'{}' {}: the neighbor does not expect {} bytes of {}",
                                           operation->name, header.sequence, operation->bytes,
                                           to_string(operation->type)))
                            .with_peer(peer.pair.peer));
      } else {
        DUNLIN_WARN("rank {} rejects what was sent to it: its call differs in size or type",
                    peer.pair.peer.value());
      }
      break;
    case Kind::kEager:
    case Kind::kAnnounce:
    case Kind::kFailed: {
      hear(peer, id);
      if (const auto [operation, intake] = find_intake(peer, id); operation != nullptr) {
        return arrive(*operation, *intake, {header, part.bytes}, sequence);
      }
      if (header.sequence <= peer.received_calls[header.key]) {  // for a call that has ended
        if (header.kind == Kind::kAnnounce) reply(peer, header, Kind::kUnwanted);
        break;
      }
      // The data are copied, and the slot is released.
      const auto [early, is_new] = peer.early.try_emplace(id);
      if (!is_new && header.kind != Kind::kFailed) break;
      peer.early_bytes += part.bytes.size() - early->second.moved.size();
      early->second = {header, {}, Bytes(part.bytes.begin(), part.bytes.end())};
      break;
    }
  }
}

// Whether a call in progress waits for the peer.
bool Router::is_needed(const Peer& peer) const {
  const auto awaits = [&](const NeighborOperation& operation) {
    for (const Delivery& delivery : operation.deliveries) {
      if (delivery.pair == &peer.pair && !delivery.is_over) return true;
    }
    for (const Intake& intake : operation.intakes) {
      if (intake.pair == &peer.pair && !intake.has_arrived()) return operation.failure.is_ok();
    }
    return false;
  };
  return std::any_of(active_.begin(), active_.end(),
                     [&](const auto& each) { return awaits(*each.second); });
}

void Router::receive(Peer& peer) {
  const std::size_t most_early = peer.unheard.empty() ? kMostEarlyBytes : 2 * kMostEarlyBytes;
  while (peer.early_bytes <= most_early || is_sought(peer) || is_needed(peer)) {
    const auto message = peer.pair.messages->poll();
    if (!message) break;
    dispatch(peer, *message);
  }
  while (const auto message = peer.pair.chunks->poll()) take_chunk(peer, *message);
}

void Router::progress() {
  if (options_.gpu != nullptr) options_.gpu->progress();
  for (Peer* const peer : met_) {
    Pair& pair = peer->pair;
    if (!pair.is_connected() && !(wants_connection(*peer) && connect(*peer))) continue;
    pair.messages->progress();
    pair.chunks->progress();
    receive(*peer);
  }
  watch_peers();
  watch_gpu();
  for (Peer* const peer : met_) {
    send_first(*peer);
    send_chunks(*peer);
  }
  for (const auto& [key, operation] : active_) {
    if (options_.gpu != nullptr) operation->confirm_chunks();
    if (!operation->failure.is_ok()) {
      decline(*operation);
      continue;
    }
    for (Intake& intake : operation->intakes) ask(*operation, intake);
    operation->take();
  }
  std::erase_if(active_, [](const auto& each) { return each.second->is_over(); });
  for (Peer* const peer : met_) {
    if (!peer->pair.is_connected()) continue;
    peer->relief.make_room(peer->pair, active_, fabric_.clock());
    flush(*peer);
  }
  look_for_owed_acknowledgments();
}

void Router::send_first(Peer& peer) {
  if (peer.pair.is_connected()) peer.outbox.send(*peer.pair.messages, traffic_);
}

void Router::send_chunks(Peer& peer) {
  while (!peer.asked.empty()) {
    const auto [operation, delivery] = find_delivery(peer, peer.asked.front());
    if (operation != nullptr && !operation->send_chunks(*delivery)) return;
    peer.asked.pop_front();
  }
}

bool Router::wants_connection(const Peer& peer) const {
  return is_needed(peer) || is_sought(peer) || !peer.replies.empty() ||
         (!peer.unheard.empty() && peer.pair.messages->has_heard());
}

bool Router::connect(Peer& peer) {
  Status status = peer.pair.connect();
  if (status.is_ok() || status.is_busy()) return status.is_ok();
  fail_with(peer, status);
  forgive(peer);
  return false;
}

// Fails all calls that still need the peer, unless they go on without it.
void Router::fail_with(const Peer& peer, const Status& why) {
  for (const auto& [key, operation] : active_) {
    for (Delivery& delivery : operation->deliveries) {
      if (delivery.pair == &peer.pair && !delivery.is_over) operation->lose(delivery, why);
    }
    for (Intake& intake : operation->intakes) {
      const bool is_missing = !intake.is_lost && !intake.has_arrived();
      if (intake.pair == &peer.pair && is_missing) operation->lose(intake, why);
    }
  }
}

void Router::watch_peers() {
  PeerTable& table = fabric_.peers();
  if (!table.is_anybody_gone()) return;
  for (Peer* const peer : met_) {
    const Rank rank = peer->pair.peer;
    if (table.is_present(rank)) continue;
    fail_with(*peer, table.check(rank));
    forgive(*peer);
  }
}

void Router::watch_gpu() {
  if (options_.gpu == nullptr || options_.gpu->failure().is_ok()) return;
  for (const auto& [key, operation] : active_) {
    for (Delivery& delivery : operation->deliveries)
      delivery.has_failed = !std::exchange(delivery.is_over, true);
    operation->fail(options_.gpu->failure());
  }
}

NeighborOperation* Router::find(std::uint64_t number) {
  const auto found = operations_.find(number);
  return found == operations_.end() ? nullptr : &found->second;
}

}  // namespace dunlin::collective::neighbor
