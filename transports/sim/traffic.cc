// How an operation travels over the network, from launch() to finish().
#include <cstring>

#include "transports/sim/endpoint.h"
#include "transports/sim/lane.h"
#include "transports/sim/network.h"

namespace dunlin::transport::sim {
namespace {

// The number, in an event, of the part of an operation behind its payload: the notification.
constexpr std::uint16_t kLastPart = 0xffff;
static_assert(kMostPieces < kLastPart);

}  // namespace

Duration Network::draw_jitter() {
  switch (options_.jitter.kind) {
    case Jitter::Kind::kNone:
      break;
    case Jitter::Kind::kUniform:
      return random_.uniform(options_.jitter.scale);
    case Jitter::Kind::kExponential:
      return random_.exponential(options_.jitter.scale);
  }
  return Duration::zero();
}

void Network::launch(OperationId id) {
  Operation& operation = operations_[id];
  const SimLane& lane = *operation.lane;
  ++statistics_.messages;
  statistics_.bytes += operation.wire_bytes;
  if (options_.hostility) return launch_hostile(operation, id);
  ++operation.references;
  const TimePoint left =
      ports_.leave(now(), lane.endpoint_.rank(), lane.route_, lane.kind_, operation.wire_bytes);
  if (!ports_.has_uplinks(lane.route_)) return send_head(operation, id, left);
  events_.push(left, EventKind::kRackUp, id);
}

// The first byte leaves for the receiver's ingress.
void Network::send_head(Operation& operation, OperationId id, TimePoint left) {
  SimLane& lane = *operation.lane;
  const TimePoint head = left + options_.link(lane.route_).latency + draw_jitter();
  // Jitter reorders different lanes, but not the operations of one.
  lane.last_head_ = std::max(lane.last_head_, head);
  events_.push(lane.last_head_,
               ports_.has_uplinks(lane.route_) ? EventKind::kRackDown : EventKind::kHead, id);
}

void Network::launch_hostile(Operation& operation, OperationId id) {
  SimLane& lane = *operation.lane;
  const TimePoint soonest = now() + options_.link(lane.route_).latency + draw_jitter() +
                            ports_.transfer(lane.route_, operation.wire_bytes);
  const auto schedule = [&](std::uint16_t part, TimePoint when) {
    lane.last_landing_ = std::max(lane.last_landing_, when);
    events_.push(when, EventKind::kPiece, id, part);
    ++operation.parts_left;
    ++operation.references;
  };
  const Hostility& hostility = *options_.hostility;
  if (operation.is_put) {
    operation.pieces = static_cast<std::uint16_t>(random_.number(1, hostility.pieces));
    // A get sees what earlier puts of the lane wrote.
    const TimePoint first =
        operation.sink != nullptr ? std::max(soonest, lane.last_landing_) : soonest;
    for (std::uint16_t piece = 0; piece < operation.pieces; ++piece) {
      schedule(piece, first + random_.uniform(hostility.longest_delay));
    }
  }
  if (!operation.has_notification && !operation.has_answer) return;
  const TimePoint when = soonest + random_.uniform(hostility.longest_delay);
  schedule(kLastPart, std::max(when, lane.last_landing_));
}

void Network::handle_operation(const Event& event) {
  const OperationId id = event.subject;
  Operation& operation = operations_[id];
  SimLane* const lane = operation.lane;
  // The lane was closed, or the sender died.
  if (lane == nullptr || is_lost(lane->endpoint_.rank())) return operations_.drop_reference(id);
  const Rank from = lane->endpoint_.rank();
  switch (event.kind) {
    case EventKind::kRackUp:
      return send_head(operation, id, ports_.go_up(now(), from, lane->kind_, operation.wire_bytes));
    case EventKind::kRackDown:
      events_.push(ports_.go_down(now(), lane->peer(), lane->kind_, operation.wire_bytes),
                   EventKind::kHead, id);
      return;
    case EventKind::kHead:
      return take_in(id);
    case EventKind::kLand:
      return land(id);
    case EventKind::kPiece:
      return land_piece(id, event.piece);
    default:
      finish(id);
      operations_.drop_reference(id);
  }
}

// The first byte has reached the receiver's ingress.
void Network::take_in(OperationId id) {
  Operation& operation = operations_[id];
  SimLane& lane = *operation.lane;
  const TimePoint landing =
      std::max(ports_.arrive(now(), lane.peer(), lane.route_, lane.kind_, operation.wire_bytes),
               lane.last_landing_);
  // If an earlier operation of the lane lands at this moment, its event may not have happened yet.
  const bool is_here = landing == now() && lane.last_landing_ < now();
  lane.last_landing_ = landing;
  if (is_here) return land(id);
  events_.push(landing, EventKind::kLand, id);
}

bool Network::is_unheard(const Operation& operation) const {
  const SimLane& lane = *operation.lane;
  return is_lost(lane.peer()) || is_revoked(lane.endpoint_.rank(), lane.peer());
}

void Network::land(OperationId id) {
  Operation& operation = operations_[id];
  if (!is_unheard(operation)) {
    if (operation.size != 0) copy(operation, 0, operation.size);
    if (operation.has_notification) publish(operation);
    if (operation.has_answer) {
      answer(id, now() + options_.link(operation.lane->route_).latency);
    } else {
      finish(id);
    }
  }
  // The sender of a put to a dead rank learns of it by the event kNews.
  operations_.drop_reference(id);
}

void Network::land_piece(OperationId id, std::uint16_t piece) {
  Operation& operation = operations_[id];
  if (!is_unheard(operation)) {
    if (piece != kLastPart) {
      const auto end_of = [&](std::size_t pieces) {
        return operation.size * pieces / operation.pieces;
      };
      copy(operation, end_of(piece), end_of(std::size_t{piece} + 1));
    } else if (operation.has_notification) {
      publish(operation);
    }
    if (--operation.parts_left == 0) finish(id);
  }
  operations_.drop_reference(id);
}

void Network::answer(OperationId id, TimePoint when) {
  ++operations_[id].references;
  events_.push(when, EventKind::kAnswer, id);
}

void Network::copy(Operation& operation, std::size_t begin, std::size_t end) {
  // A peer that has left takes nothing. That is not an error.
  const bool is_get = operation.sink != nullptr;
  if (begin == end || (!is_get && endpoint(operation.lane->peer()) == nullptr)) return;
  std::byte* const there = regions_.find(operation.target, operation.offset + begin, end - begin);
  const std::byte* const here = is_get ? operation.sink : operation.source;
  if (there == nullptr) {
    operation.is_deregistered = true;
  } else if (phantom_.contains(there) || phantom_.contains(here)) {
    return;
  } else if (is_get) {
    std::memcpy(operation.sink + begin, there, end - begin);
  } else {
    std::memcpy(there, operation.source + begin, end - begin);
  }
}

void Network::publish(Operation& operation) {
  const Rank to = operation.lane->peer();
  Endpoint* const there = endpoint(to);
  // Bytes that were not written are not announced. The cell was checked when it was posted, but the
  // rank's present endpoint may have a smaller board.
  if (operation.is_deregistered || there == nullptr ||
      static_cast<std::size_t>(operation.cell) >= there->board().size())
    return;
  Notification notification;
  notification.id = operation.cell;
  notification.sequence = operation.sequence;
  notification.tag = operation.tag;
  notification.length = operation.length;
  notification.inline_data = {operation.inline_data, operation.inline_size};
  there->board().cell(operation.cell).publish(notification);
  nudge(to);
}

void Network::finish(OperationId id) {
  Operation& operation = operations_[id];
  SimLane& lane = *operation.lane;
  const bool has_asker = operation.completion != nullptr;
  operation.is_done = true;
  if (has_asker) {
    lane.endpoint_.add_done(id);
  } else {
    lane.settle(id, Status::ok());
  }
  if (lane.flushes_ > 0) lane.finish_flush();
  if (has_asker || lane.was_refused_) {
    lane.was_refused_ = false;
    nudge(lane.endpoint_.rank());
  }
}

}  // namespace dunlin::transport::sim
