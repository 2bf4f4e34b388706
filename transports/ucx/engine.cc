#include "transports/ucx/engine.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>

#include "runtime/log.h"
#include "transports/ucx/devices.h"

namespace dunlin::transport::ucx {
namespace {

// RMA is worth it if a NIC writes by itself. UCX does not say what it will use, but without an RDMA
// device it can only emulate RMA, which over TCP is five times slower than messages.
bool decide_rma(RmaMode mode) {
  return mode == RmaMode::kAuto ? !rdma_ports().empty() : mode == RmaMode::kOn;
}

}  // namespace

Engine::Engine(const TransportContext& context)
    : context_(context),
      uses_rma_(decide_rma(context.config.ucx_rma)),
      connections_(static_cast<std::size_t>(context.peers.size())),
      ports_{{this, LaneKind::kData}, {this, LaneKind::kControl}} {}

Result<std::unique_ptr<Engine>> Engine::create(const TransportContext& context) {
  std::unique_ptr<Engine> engine(new Engine(context));
  DUNLIN_ASSIGN(engine->ucp_, Context::create(network_devices(context.config)));
  return engine;
}

Status Engine::open() {
  for (const LaneKind kind : kBothLanes) {
    auto& worker = workers_[index_of(kind)];
    DUNLIN_ASSIGN(worker, Worker::create(*ucp_));
    Port* const port = &ports_[index_of(kind)];
    DUNLIN_TRY(worker->set_handler(kLaneMessage, on_lane_message, port));
    DUNLIN_TRY(worker->set_handler(kServiceMessage, on_service_message, port));
    DUNLIN_ASSIGN(address_.worker[index_of(kind)], worker->address());
  }
  address_.cells = context_.board.size();
  randombytes_buf(&address_.token, sizeof address_.token);
  is_open_ = true;
  return Status::ok();
}

Engine::~Engine() {
  if (!is_open()) return;
  const TimePoint began = SteadyClock().now();
  for (const auto& connection : connections_) {
    if (!connection) continue;
    for (const LaneKind kind : kBothLanes) connection->announce_close(kind, kind);
  }
  const auto is_answered = [this](bool counts_stalled) {
    return std::none_of(connections_.begin(), connections_.end(), [&](const auto& connection) {
      if (!connection || !connection->awaits_close_acknowledgment()) return false;
      return counts_stalled || context_.peers.state(connection->peer()) == PeerState::kAlive;
    });
  };
  drain([&] { return is_answered(true); }, kCloseGrace);
  drain([&] { return is_answered(false); }, kShutdownGrace);
  drain_until_quiet(began);
  for (const auto& connection : connections_) {
    if (connection) connection->close_endpoints();
  }
}

void Engine::drain_until_quiet(TimePoint began) {
  const SteadyClock clock;
  TimePoint quiet_since = clock.now();
  const bool is_young = has_connections_ && began - connected_at_ < kYouth;
  const Duration wanted = is_young ? Duration(kYoungQuiet) : Duration(kQuiet);
  poll_until([&] { return clock.now() - quiet_since >= wanted; }, kQuietGrace,
             [&] {
               const std::size_t events = progress();
               if (events > 0) quiet_since = clock.now();
               return events;
             });
}

Connection& Engine::connection(Rank peer) {
  auto& connection = connections_[peer.index()];
  if (!connection) {
    connection = std::make_unique<Connection>(*this, peer);
    has_connections_ = true;
    connected_at_ = SteadyClock().now();
  }
  return *connection;
}

Result<Connection*> Engine::connect(Rank peer, const Address& address) {
  Connection& to = connection(peer);
  for (const LaneKind kind : kBothLanes) DUNLIN_TRY(to.path(kind).failure);
  if (to.is_open()) return &to;
  connected_at_ = SteadyClock().now();
  DUNLIN_TRY(to.open(address));
  to.send(service(to, ServiceKind::kHello), address_.encode());
  return &to;
}

std::size_t Engine::progress() {
  std::size_t events = 0;
  if (!is_open()) return 0;
  for (const auto& worker : workers_) events += worker->progress();
  check_peers();
  if (wants_settling_) settle();
  return events;
}

void Engine::check_peers() {
  if (context_.peers.version() == seen_peers_) return;
  seen_peers_ = context_.peers.version();
  for (const auto& connection : connections_) {
    if (connection && !context_.peers.is_present(connection->peer())) {
      connection->sever_all(context_.peers.check(connection->peer()));
    }
  }
}

void Engine::settle() {
  wants_settling_ = false;
  for (const auto& connection : connections_) {
    if (connection && connection->settle()) wants_settling_ = true;
  }
}

Status Engine::revoke(Rank peer) {
  if (!is_open()) return Status::ok();
  // The connection is made if there is none: a first message of the peer may still arrive.
  return connection(peer).revoke(context_.peers.check(peer));
}

bool Engine::arm() {
  if (!is_open()) return true;
  if (wants_settling_) return false;
  bool is_quiet = true;
  for (const auto& worker : workers_) is_quiet = worker->arm() && is_quiet;
  return is_quiet;
}

ServiceHeader Engine::service(const Connection& to, ServiceKind kind, LaneKind lane,
                              std::uint64_t order) const {
  ServiceHeader header{};
  header.token = to.peer_token();
  header.source = static_cast<std::uint32_t>(context_.self.value());
  header.version = kWireVersion;
  header.kind = kind;
  header.lane = lane;
  header.order = order;
  return header;
}

void Engine::answer_flush(Rank peer, LaneKind lane, std::uint64_t order) {
  Connection& to = connection(peer);
  to.send(service(to, ServiceKind::kFlushed, lane, order));
}

// The bytes go over the lane's own path, so that control messages do not queue behind them.
void Engine::answer_read(Rank peer, LaneKind lane, const MessageHeader& message) {
  const RegionTable::Entry* const entry = regions_.find(message.region);
  if (entry == nullptr) {  // deregistered since the message arrived
    reject(peer, lane, message, Code::kNotFound);
    return;
  }
  Connection& to = connection(peer);
  const auto bytes = entry->memory->bytes().subspan(message.offset, message.size);
  to.send_over(lane, service(to, ServiceKind::kRead, lane, message.order),
               Bytes(bytes.begin(), bytes.end()));
}

void Engine::reject(Rank peer, LaneKind lane, const MessageHeader& message, Code code) {
  Connection& to = connection(peer);
  ServiceHeader header = service(to, ServiceKind::kRejected, lane, message.order);
  header.region = message.region;
  header.code = code;
  to.send(header);
}

void Engine::announce_revoked(std::uint64_t region) {
  for (const auto& connection : connections_) {
    if (!connection) continue;
    ServiceHeader header = service(*connection, ServiceKind::kRevoked);
    header.region = region;
    connection->send(header);
  }
}

bool Engine::is_genuine(std::uint64_t token, std::uint32_t source) const {
  if (token == address_.token && source < connections_.size()) return true;
  DUNLIN_WARN("dropped a message that claims to be from rank {} and was not meant for this process",
              source);
  return false;
}

ucs_status_t Engine::on_lane_message(void* user_data, const void* bytes, std::size_t header_size,
                                     void* data, std::size_t size,
                                     const ucp_am_recv_param_t* param) {
  const auto& port = *static_cast<Port*>(user_data);
  Engine& engine = *port.engine;
  const bool is_announced = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const ucs_status_t refusal = is_announced ? UCS_ERR_INVALID_ADDR : UCS_OK;
  const auto header = MessageHeader::parse(bytes, header_size);
  if (!header) {
    DUNLIN_WARN("dropped a malformed message of {} bytes", header_size);
    return refusal;
  }
  if (!engine.is_genuine(header->token, header->source)) return refusal;
  Inbox& inbox = engine.connection(Rank(static_cast<int>(header->source))).path(port.lane).inbox;
  if (is_announced) return inbox.accept_announced(*header, data, size);
  inbox.accept(*header, data, size);
  return UCS_OK;
}

ucs_status_t Engine::on_service_message(void* user_data, const void* bytes, std::size_t header_size,
                                        void* data, std::size_t size,
                                        const ucp_am_recv_param_t* param) {
  const auto& port = *static_cast<Port*>(user_data);
  const auto header = ServiceHeader::parse(bytes, header_size);
  if (!header || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    DUNLIN_WARN("dropped a malformed service message of {} bytes", header_size);
  } else if (port.engine->is_genuine(header->token, header->source)) {
    port.engine->on_service(*header, data, size);
  }
  return UCS_OK;
}

void Engine::on_service(const ServiceHeader& header, const void* payload, std::size_t size) {
  Connection& from = connection(Rank(static_cast<int>(header.source)));
  UcxLane* const lane = from.path(header.lane).lane;
  switch (header.kind) {
    case ServiceKind::kHello: {
      auto address = Address::decode({static_cast<const std::byte*>(payload), size});
      if (!address) {
        DUNLIN_WARN("rank {} sent a bad greeting: {}", header.source, address.status().to_string());
        return;
      }
      from.offer(std::move(address).value());
      want_settling();
      return;
    }
    case ServiceKind::kFlushed:
      if (lane != nullptr) lane->on_flush_answered(header.order);
      return;
    case ServiceKind::kRead:
      if (lane != nullptr)
        lane->on_read(header.order, {static_cast<const std::byte*>(payload), size});
      return;
    case ServiceKind::kRejected:
      if (header.code == Code::kNotFound) from.imports().revoke(header.region);
      if (lane != nullptr) lane->on_rejected(header.order, header.code, header.region);
      return;
    case ServiceKind::kRevoked:
      from.imports().revoke(header.region);
      return;
    case ServiceKind::kClosing:
      from.path(header.lane).has_peer_closed = true;
      from.acknowledge_close(header.lane);
      want_settling();
      return;
    case ServiceKind::kClosingAcknowledged:
      from.path(header.lane).is_close_acknowledged = true;
      return;
  }
}

}  // namespace dunlin::transport::ucx
