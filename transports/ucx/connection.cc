#include "transports/ucx/connection.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/log.h"
#include "transports/ucx/engine.h"
#include "transports/ucx/lane.h"

namespace dunlin::transport::ucx {

Connection::Connection(Engine& engine, Rank peer)
    : engine_(engine),
      peer_(peer),
      data_(engine, *this, peer, LaneKind::kData),
      control_(engine, *this, peer, LaneKind::kControl) {}

bool Connection::uses_rma() const {
  return engine_.uses_rma();
}

Status Connection::open(const Address& address) {
  // A process need not be told that it is gone itself, and UCX's loopback transport cannot report
  // it.
  const bool reports_failure = peer_ != engine_.context().self;
  for (const LaneKind kind : kBothLanes) {
    auto endpoint = Endpoint::create(engine_.worker(kind), address.worker[index_of(kind)], on_error,
                                     &path(kind), reports_failure);
    if (!endpoint) {
      Status failure = std::move(endpoint).status().with_peer(peer_);
      sever_all(failure);
      return failure;
    }
    path(kind).endpoint = std::move(endpoint).value();
  }
  peer_cells_ = address.cells;
  peer_token_ = address.token;
  is_open_ = true;
  sending_.splice(sending_.end(), waiting_);
  for (auto next = sending_.begin(); next != sending_.end();) {
    Outgoing& message = *next++;
    message.header.token = peer_token_;
    transmit(message);
  }
  return Status::ok();
}

bool Connection::needs_closing(LaneKind kind) const {
  const Path& it = path(kind);
  return !it.failure.is_ok() && it.endpoint != nullptr && (it.flushes == 0 || it.error);
}

bool Connection::settle() {
  if (offered_ && !is_open_) {
    const Address address = std::move(*offered_);
    offered_.reset();
    if (Status status = open(address); !status.is_ok()) {
      DUNLIN_WARN("cannot answer rank {}: {}", peer_.value(), status.to_string());
    }
  }
  bool is_due = false;
  for (const LaneKind kind : kBothLanes) {
    Path& it = path(kind);
    if (it.failure.is_ok() && (it.error || it.has_peer_closed)) {
      const bool is_ripe = it.has_peer_closed || std::chrono::steady_clock::now() >= it.verdict_at;
      if (is_ripe) pass_verdict(kind);
      is_due = is_due || !is_ripe;
    }
    if (needs_closing(kind)) it.endpoint.reset();
  }
  return is_due;
}

void Connection::settle_soon(const Path& path) {
  if (!path.failure.is_ok()) engine_.want_settling();
}

void Connection::note_error(Path& path, ucs_status_t status) {
  if (path.error) return;
  path.error = status;
  path.verdict_at = std::chrono::steady_clock::now() + kVerdictGrace;
  engine_.want_settling();
}

void Connection::pass_verdict(LaneKind kind) {
  PeerTable& peers = engine_.context().peers;
  if (path(kind).has_peer_closed || peers.state(peer_) == PeerState::kLeft) {
    sever(kind, Status(Code::kPeerDead, "the peer has closed its end").with_peer(peer_));
    return;
  }
  const std::string text = fmt::format("UCX lost the {} endpoint: {}", to_string(kind),
                                       ucs_status_string(*path(kind).error));
  peers.mark(peer_, PeerState::kDead, text);
  sever_all(Status(Code::kPeerDead, text).with_peer(peer_));
}

void Connection::sever(LaneKind kind, const Status& why) {
  Path& it = path(kind);
  if (!it.failure.is_ok()) return;
  it.failure = why;
  if (needs_closing(kind)) it.endpoint.reset();
  if (kind == LaneKind::kControl) idle_.splice(idle_.end(), waiting_);
  if (it.lane != nullptr) it.lane->abort();
}

void Connection::sever_all(const Status& why) {
  for (const LaneKind kind : kBothLanes) sever(kind, why);
}

Status Connection::revoke(const Status& why) {
  sever_all(why);
  bool is_busy = false;
  for (const LaneKind kind : kBothLanes) {
    Path& it = path(kind);
    it.inbox.refuse();
    is_busy = is_busy || it.endpoint != nullptr || it.inbox.is_fetching();
  }
  if (is_busy) engine_.want_settling();
  return is_busy ? Status::busy() : Status::ok();
}

void Connection::close_endpoints() {
  for (const LaneKind kind : kBothLanes) path(kind).endpoint.reset();
}

void Connection::announce_close(LaneKind ending, LaneKind over) {
  if (path(over).endpoint == nullptr) return;
  send_over(over, engine_.service(*this, ServiceKind::kClosing, ending), {});
}

void Connection::send_over(LaneKind over, const ServiceHeader& header, Bytes payload) {
  if (!path(over).failure.is_ok()) return;
  if (idle_.empty()) idle_.emplace_back();
  Outgoing& message = idle_.front();
  message = {this, over, header, std::move(payload), idle_.begin()};
  auto& queue = is_open_ ? sending_ : waiting_;
  queue.splice(queue.end(), idle_, idle_.begin());
  if (is_open_) transmit(message);
}

void Connection::transmit(Outgoing& message) {
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = on_sent;
  params.user_data = &message;
  const ucs_status_ptr_t request = ucp_am_send_nbx(
      path(message.over).endpoint->handle(), kServiceMessage, &message.header,
      sizeof message.header, message.payload.data(), message.payload.size(), &params);
  if (!UCS_PTR_IS_PTR(request)) finish(message);
}

void Connection::finish(Outgoing& message) {
  message.payload = {};
  idle_.splice(idle_.end(), sending_, message.place);
}

// A message that could not be sent needs no handling: its endpoint is broken, and reported as such.
void Connection::on_sent(void* request, ucs_status_t, void* user_data) {
  ucp_request_free(request);
  auto& message = *static_cast<Outgoing*>(user_data);
  message.connection->finish(message);
}

bool Connection::awaits_close_acknowledgment() const {
  return std::any_of(std::begin(kBothLanes), std::end(kBothLanes), [this](LaneKind kind) {
    return path(kind).endpoint != nullptr && !path(kind).is_close_acknowledged;
  });
}

void Connection::acknowledge_close(LaneKind ending) {
  if (path(ending).endpoint == nullptr) return;
  send_over(ending, engine_.service(*this, ServiceKind::kClosingAcknowledged, ending), {});
}

void Connection::on_error(void* user_data, ucp_ep_h, ucs_status_t status) {
  auto& path = *static_cast<Path*>(user_data);
  path.connection.note_error(path, status);
}

}  // namespace dunlin::transport::ucx
