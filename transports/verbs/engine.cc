#include "transports/verbs/engine.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <sodium.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/log.h"
#include "transports/verbs/constants.h"
#include "transports/verbs/device.h"
#include "transports/verbs/preflight.h"
#include "transports/verbs/region.h"

namespace dunlin::transport::verbs {
namespace {

// That a queue pair may have outstanding.
int completions_of(const ibv_qp_cap& room) {
  return static_cast<int>(room.max_send_wr + room.max_recv_wr);
}

}  // namespace

Engine::Engine(const TransportContext& context)
    : context_(context),
      queue_depth_(static_cast<std::uint32_t>(context.config.verbs_queue_depth)),
      connections_(static_cast<std::size_t>(context.peers.size())) {}

Result<std::unique_ptr<Engine>> Engine::create(const TransportContext& context) {
  std::unique_ptr<Engine> engine(new Engine(context));
  DUNLIN_TRY(engine->start());
  return engine;
}

Status Engine::start() {
  DUNLIN_ASSIGN(const auto addresses, find_addresses(context_.config.verbs_device));
  const DeviceAddress& chosen = choose(addresses, context_.local_rank);
  DUNLIN_ASSIGN(events_, EventChannel::create());
  DUNLIN_ASSIGN(listener_, CmId::create(*events_));
  DUNLIN_ASSIGN(SocketAddress local, SocketAddress::parse(chosen.ip, 0));
  if (rdma_bind_addr(listener_->handle(), local.get()) != 0)
    return Status::from_errno("rdma_bind_addr " + chosen.ip, errno);
  if (listener_->handle()->verbs == nullptr) {
    return {Code::kUnavailable, fmt::format("{} belongs to no RDMA device", chosen.ip)};
  }
  // All of them may come at once, and what finds the queue full waits for seconds.
  const int backlog = static_cast<int>(kLaneKinds) * context_.peers.size();
  if (rdma_listen(listener_->handle(), backlog) != 0)
    return Status::from_errno("rdma_listen", errno);

  ibv_context* const device = listener_->handle()->verbs;
  ibv_port_attr port{};
  if (const int error = ibv_query_port(device, listener_->handle()->port_num, &port); error != 0)
    return Status::from_errno("ibv_query_port", error);
  longest_message_ = port.max_msg_sz;
  DUNLIN_ASSIGN(domain_, ProtectionDomain::create(device));
  DUNLIN_TRY(check_locked_memory(*domain_, queue_depth_, context_.local_rank == 0));
  DUNLIN_ASSIGN(channel_, CompletionChannel::create(device));
  ibv_device_attr limits{};
  if (const int error = ibv_query_device(device, &limits); error != 0)
    return Status::from_errno("ibv_query_device", error);
  // Room for all peers from the beginning: not every provider can resize.
  const std::int64_t wanted = context_.peers.size() * (2 * queue_depth_ + 8LL);
  const int capacity = static_cast<int>(std::min<std::int64_t>(wanted, limits.max_cqe));
  for (auto& queue : completions_) {
    DUNLIN_ASSIGN(queue, CompletionQueue::create(device, *channel_, capacity));
  }
  address_.ip = chosen.ip;
  address_.port = ntohs(rdma_get_src_port(listener_->handle()));
  randombytes_buf(&address_.token, sizeof address_.token);
  DUNLIN_DEBUG("verbs: {} port {} GID index {} ({})", chosen.device, chosen.port, chosen.gid_index,
               chosen.ip);
  return Status::ok();
}

Engine::~Engine() {
  inbound_.clear();  // takes what has come, which may be for the connections
  connections_.clear();
  quarantine_.clear();
  if (channel_) channel_->drain();
}

Result<Connection*> Engine::connect(Rank peer, const Address& address) {
  is_in_use_ = true;
  Connection& connection = connections_[peer.index()];
  if (connection.lanes[0] == nullptr) {
    std::unique_ptr<Outbound> made[kLaneKinds];
    for (const LaneKind kind : kBothLanes) {
      auto& lane = made[index_of(kind)];
      lane = std::make_unique<Outbound>(*this, peer, kind);
      DUNLIN_TRY(lane->connect(address));
    }
    std::move(std::begin(made), std::end(made), connection.lanes);
  }
  for (const LaneKind kind : kBothLanes) DUNLIN_TRY(connection.lane(kind).failure());
  return &connection;
}

Status Engine::make_queue_pair(CmId& id, LaneKind kind, ibv_qp_cap room, Endpoint& endpoint) {
  CompletionQueue& completions = *completions_[index_of(kind)];
  DUNLIN_TRY(completions.reserve(completions_of(room)));
  ibv_qp_init_attr attributes{};
  attributes.send_cq = completions.handle();
  attributes.recv_cq = completions.handle();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = room;
  Status status = id.create_queue_pair(*domain_, attributes);
  if (!status.is_ok() && room.max_inline_data != 0) {  // a provider without inline data
    attributes.cap.max_inline_data = 0;
    status = id.create_queue_pair(*domain_, attributes);
  }
  if (status.is_ok()) {
    endpoints_[id.queue_pair()->qp_num] = &endpoint;
  } else {
    completions.release(completions_of(room));
  }
  return status;
}

void Engine::detach(CmId& id, LaneKind kind, const ibv_qp_cap& room) {
  if (id.queue_pair() == nullptr) return;
  endpoints_.erase(id.queue_pair()->qp_num);
  completions_[index_of(kind)]->release(completions_of(room));
}

std::size_t Engine::progress() {
  if (restless_ > 0 || looks_for_events_ || ++turns_ >= kTurnsPerEventCheck) {
    take_events();
    tend();
  }
  const std::size_t events = take_completions();
  watch_peers();
  // What arrived before the end has been seen by now.
  if (events == 0 && std::exchange(has_gone_peers_, false)) {
    std::erase_if(inbound_,
                  [&](const auto& one) { return !context_.peers.is_present(one->peer()); });
  }
  return events;
}

std::size_t Engine::take_completions() {
  std::size_t events = 0;
  for (const LaneKind kind : kBothLanes) events += poll(kind);
  return events;
}

void Engine::tend() {
  const TimePoint now = context_.clock.now();
  const bool probes = now >= next_probe_;
  if (probes) next_probe_ = now + kProbeInterval;
  if (!probes && restless_ == 0) return;
  for (const Connection& connection : connections_) {
    for (const auto& lane : connection.lanes) {
      if (!lane) continue;
      lane->step(now);
      if (probes) lane->probe();
    }
  }
}

std::size_t Engine::poll(LaneKind kind) {
  ibv_wc completions[kPollBatch];
  const int count = ibv_poll_cq(completions_[index_of(kind)]->handle(), kPollBatch, completions);
  for (int i = 0; i < count; ++i) {
    const auto found = endpoints_.find(completions[i].qp_num);
    if (found != endpoints_.end()) found->second->on_completion(completions[i]);
  }
  return static_cast<std::size_t>(std::max(count, 0));
}

void Engine::take_events() {
  turns_ = 0;
  looks_for_events_ = false;
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(events_->handle(), &event) == 0) {
    const auto* const data = static_cast<const std::byte*>(event->param.conn.private_data);
    const std::size_t size = data == nullptr ? 0 : event->param.conn.private_data_len;
    const CmEvent copy{event->event, event->status, {data, data + size}};
    rdma_cm_id* const id = event->id;
    rdma_ack_cm_event(event);
    if (copy.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      on_request(id, copy);
    } else if (id != listener_->handle() && id->context != nullptr) {
      static_cast<Endpoint*>(id->context)->on_event(copy);
    }
  }
}

Result<Request> Engine::read_request(const CmEvent& event) const {
  Request request{};
  if (event.private_data.size() < sizeof request)
    return Status(Code::kCorrupted, "its request is cut short");
  std::memcpy(&request, event.private_data.data(), sizeof request);
  if (request.version != kWireVersion) {
    return Status(Code::kUnavailable, fmt::format("it speaks version {} of the wire format, not {}",
                                                  request.version, kWireVersion));
  }
  if (request.token != address_.token)
    return Status(Code::kCorrupted, "it does not know our token");
  if (request.source >= connections_.size() || index_of(request.lane) >= kLaneKinds)
    return Status(Code::kCorrupted, "its request names no rank and lane of this job");
  const Rank peer(static_cast<int>(request.source));
  if (!context_.peers.is_present(peer)) return context_.peers.check(peer);
  if (request.is_resumed != 0 && inbound(peer, request.lane) == nullptr)
    return Status(Code::kCorrupted, "there was no connection to resume");
  return request;
}

void Engine::on_request(rdma_cm_id* id, const CmEvent& event) {
  is_in_use_ = true;
  auto owned = std::make_unique<CmId>(id);
  id->context = nullptr;
  const auto request = read_request(event);
  if (!request) {
    DUNLIN_WARN("refused a connection: {}", request.status().message());
    (void)rdma_reject(id, nullptr, 0);
    return;
  }
  const Rank peer(static_cast<int>(request->source));
  Inbound* to = inbound(peer, request->lane);
  Status status;
  if (to == nullptr) {
    auto made = Inbound::create(*this, peer, request->lane);
    status = made.status();
    if (made) to = inbound_.emplace_back(std::move(made).value()).get();
  }
  if (status.is_ok()) status = to->accept(std::move(owned), *request);
  if (!status.is_ok()) DUNLIN_WARN("can't accept rank {}: {}", peer.value(), status.to_string());
}

Inbound* Engine::inbound(Rank peer, LaneKind kind) const {
  const auto found = std::find_if(inbound_.begin(), inbound_.end(), [&](const auto& one) {
    return one->peer() == peer && one->kind() == kind;
  });
  return found == inbound_.end() ? nullptr : found->get();
}

void Engine::watch_peers() {
  if (context_.peers.version() == seen_peers_) return;
  seen_peers_ = context_.peers.version();
  has_gone_peers_ = context_.peers.is_anybody_gone();
  if (has_gone_peers_) take_all_completions();  // what they have taken has completed
  for (int rank = 0; rank < context_.peers.size(); ++rank) {
    if (context_.peers.is_present(Rank(rank))) continue;
    for (const auto& lane : connections_[static_cast<std::size_t>(rank)].lanes) {
      if (lane) lane->fail(context_.peers.check(Rank(rank)));
    }
  }
}

bool Engine::arm() {
  for (const auto& queue : completions_) {
    if (!queue->arm()) return false;
  }
  looks_for_events_ = true;
  // What came before the queues were armed announced nothing.
  return progress() == 0;
}

void Engine::revoke(std::uint64_t region, std::shared_ptr<MemoryRegion> memory,
                    std::unique_ptr<MemoryKey> key) {
  for (Connection& connection : connections_) {
    if (connection.lanes[0]) connection.lane(LaneKind::kControl).send_service(kRevoked, region);
  }
  if (memory->is_owned()) quarantine_.push_back({std::move(memory), std::move(key)});
}

void Engine::on_service(Rank peer, std::uint32_t immediate, const Record& record) {
  if (immediate == kRevoked) connections_[peer.index()].imports.revoke(record.sequence);
}

}  // namespace dunlin::transport::verbs
