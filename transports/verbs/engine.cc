#include "transports/verbs/engine.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sodium.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/log.h"
#include "transports/verbs/constants.h"
#include "transports/verbs/device.h"
#include "transports/verbs/gpu_memory.h"
#include "transports/verbs/preflight.h"
#include "transports/verbs/region.h"

namespace dunlin::transport::verbs {
namespace {

// That a queue pair may have outstanding.
int completions_of(const ibv_qp_cap& room) {
  return static_cast<int>(room.max_send_wr + room.max_recv_wr);
}

std::optional<AtomicScope> atomics_of(const ibv_device_attr& limits) {
  if (limits.atomic_cap == IBV_ATOMIC_HCA) return AtomicScope::kTransport;
  if (limits.atomic_cap == IBV_ATOMIC_GLOB) return AtomicScope::kSystem;
  return std::nullopt;
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
  const Config& config = context_.config;
  DUNLIN_ASSIGN(auto addresses,
                find_addresses(config.verbs_device, static_cast<int>(config.verbs_gid_index)));
  if (config.verbs_connect == VerbsConnect::kManager)
    std::erase_if(addresses, [](const DeviceAddress& address) { return address.ip.empty(); });
  if (addresses.empty()) {
    return {Code::kUnavailable,
            "no active RDMA port has an IP address, which DUNLIN_VERBS_CONNECT=manager needs"};
  }
  const DeviceAddress& chosen = choose(addresses, context_.local_rank);
  DUNLIN_TRY(open_device(chosen));
  ibv_device_attr limits{};
  if (const int error = ibv_query_device(device_, &limits); error != 0)
    return Status::from_errno("ibv_query_device", error);
  address_.atomics = atomics_of(limits);
  reads_ = static_cast<std::uint8_t>(
      std::clamp(std::min(limits.max_qp_rd_atom, limits.max_qp_init_rd_atom), 1, int{kReads}));
  DUNLIN_ASSIGN(domain_, ProtectionDomain::create(device_, address_.atomics.has_value()));
  DUNLIN_TRY(check_locked_memory(*domain_, queue_depth_, context_.local_rank == 0));
  DUNLIN_ASSIGN(channel_, CompletionChannel::create(device_));
  // Room for all peers from the beginning: not every provider can resize.
  const std::int64_t wanted = context_.peers.size() * (2 * queue_depth_ + 8LL);
  const int capacity = static_cast<int>(std::min<std::int64_t>(wanted, limits.max_cqe));
  for (auto& queue : completions_) {
    DUNLIN_ASSIGN(queue, CompletionQueue::create(device_, *channel_, capacity));
  }
  if (context_.mail.fd() < 0)
    return {Code::kResourceExhausted, "no descriptor for the bootstrap's letters"};
  randombytes_buf(&address_.token, sizeof address_.token);
  DUNLIN_ASSIGN(const LocalPort port, local_port(chosen));
  address_.is_infiniband = port.is_infiniband;
  mail_ = std::make_unique<MailConnector>(context_.mail, context_.self, address_.token, port,
                                          request_handler());
  DUNLIN_DEBUG("verbs: {} port {} GID index {} ({}), connections through {}", chosen.device,
               chosen.port, chosen.gid_index, chosen.ip, cm_ ? "librdmacm" : "the bootstrap");
  return Status::ok();
}

Status Engine::open_device(const DeviceAddress& chosen) {
  if (!chosen.ip.empty() && context_.config.verbs_connect != VerbsConnect::kBootstrap)
    DUNLIN_TRY(start_manager(chosen.ip));
  if (!cm_) {
    DUNLIN_ASSIGN(own_device_, Device::open(chosen.device));
  }
  device_ = cm_ ? cm_->device() : own_device_->handle();
  return set_nonblocking(device_->async_fd);
}

// Without it there is still the bootstrap.
Status Engine::start_manager(const std::string& ip) {
  // All of them may come at once, and what finds the queue full waits for seconds.
  const int backlog = static_cast<int>(kLaneKinds) * context_.peers.size();
  auto made = CmConnector::create(
      ip, backlog, static_cast<int>(context_.config.verbs_traffic_class), request_handler());
  if (!made && context_.config.verbs_connect == VerbsConnect::kManager)
    return std::move(made).status();
  if (!made) {
    DUNLIN_INFO("verbs: no connection manager: {}", made.status().message());
    return Status::ok();
  }
  cm_ = std::move(made).value();
  address_.ip = ip;
  address_.port = cm_->ip_port();
  return Status::ok();
}

Result<LocalPort> Engine::local_port(const DeviceAddress& chosen) {
  LocalPort port;
  port.number = static_cast<std::uint8_t>(chosen.port);
  port.gid_index = static_cast<std::uint8_t>(chosen.gid_index);
  port.traffic_class = static_cast<int>(context_.config.verbs_traffic_class);
  ibv_port_attr attributes{};
  if (const int error = ibv_query_port(device_, port.number, &attributes); error != 0)
    return Status::from_errno("ibv_query_port", error);
  if (ibv_query_gid(device_, port.number, port.gid_index, &port.gid) != 0)
    return Status::from_errno(fmt::format("ibv_query_gid {}", chosen.gid_index), errno);
  longest_message_ = attributes.max_msg_sz;
  port.lid = attributes.lid;
  port.mtu = attributes.active_mtu;
  port.is_infiniband = attributes.link_layer == IBV_LINK_LAYER_INFINIBAND;
  return port;
}

// Both ends see both addresses, so that they choose alike.
bool Engine::goes_by_manager(const Address& peer) const {
  return cm_ && !peer.ip.empty();
}

Status Engine::reach(const Address& peer) const {
  if (goes_by_manager(peer) || peer.is_infiniband == address_.is_infiniband) return Status::ok();
  return {Code::kUnavailable, peer.is_infiniband ? "its port is InfiniBand's, ours Ethernet's"
                                                 : "its port is Ethernet's, ours InfiniBand's"};
}

Connector& Engine::connector(const Address& peer) {
  if (goes_by_manager(peer)) return *cm_;
  return *mail_;
}

std::vector<int> Engine::wait_fds() const {
  std::vector<int> fds{channel_->handle()->fd, device_->async_fd, mail_->fd()};
  if (cm_) fds.push_back(cm_->fd());
  return fds;
}

Engine::~Engine() {
  inbound_.clear();  // takes what has come, which may be for the connections
  connections_.clear();
  quarantine_.clear();
  mail_.reset();
  cm_.reset();
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

Status Engine::make_queue_pair(Session& session, LaneKind kind, ibv_qp_cap room,
                               Endpoint& endpoint) {
  CompletionQueue& completions = *completions_[index_of(kind)];
  DUNLIN_TRY(completions.reserve(completions_of(room)));
  ibv_qp_init_attr attributes{};
  attributes.send_cq = completions.handle();
  attributes.recv_cq = completions.handle();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = room;
  Status status = session.create_queue_pair(*domain_, attributes);
  if (!status.is_ok() && room.max_inline_data != 0) {  // a provider without inline data
    attributes.cap.max_inline_data = 0;
    status = session.create_queue_pair(*domain_, attributes);
  }
  if (status.is_ok()) {
    endpoints_[session.queue_pair()->qp_num] = &endpoint;
  } else {
    completions.release(completions_of(room));
  }
  return status;
}

void Engine::detach(Session& session, LaneKind kind, const ibv_qp_cap& room) {
  if (session.queue_pair() == nullptr) return;
  endpoints_.erase(session.queue_pair()->qp_num);
  completions_[index_of(kind)]->release(completions_of(room));
}

std::size_t Engine::progress() {
  if (is_look_due()) {
    take_events();
    const TimePoint now = context_.clock.now();
    next_look_ = now + kEventInterval;
    tend(now);
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

bool Engine::is_look_due() {
  if (restless_ > 0 || looks_for_events_ || mail_->has_news()) return true;
  // What is not in use gets a turn now and then only.
  if (is_in_use_ && ++turns_ % kTurnsPerClock != 0) return false;
  return context_.clock.now() >= next_look_;
}

std::size_t Engine::take_completions() {
  std::size_t events = 0;
  for (const LaneKind kind : kBothLanes) events += poll(kind);
  return events;
}

void Engine::tend(TimePoint now) {
  const bool probes = now >= next_probe_;
  if (probes) next_probe_ = now + kProbeInterval;
  if (probes) take_device_events();
  if (!probes && restless_ == 0) return;
  for_each_lane([&](Outbound& lane) {
    lane.step(now);
    if (probes) lane.probe();
  });
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
  looks_for_events_ = false;
  if (cm_) cm_->take_events();
  mail_->take_events();
}

// What breaks single connections, these tell themselves.
void Engine::take_device_events() {
  ibv_async_event event{};
  while (ibv_get_async_event(device_, &event) == 0) {
    const ibv_event_type type = event.event_type;
    ibv_ack_async_event(&event);
    const char* const name = ibv_get_device_name(device_->device);
    const std::string what =
        type == IBV_EVENT_DEVICE_FATAL
            ? fmt::format("the RDMA device {} was removed", name)
            : fmt::format("RDMA device {}: {}", name, ibv_event_type_str(type));
    if (type != IBV_EVENT_DEVICE_FATAL && type != IBV_EVENT_CQ_ERR) {
      DUNLIN_DEBUG("{}", what);
      continue;
    }
    for_each_lane(
        [&](Outbound& lane) { lane.on_event({.type = EventType::kDeviceGone, .reason = what}); });
  }
}

void Engine::report_gone_device(const std::string& what) {
  if (!std::exchange(has_reported_device_, true)) DUNLIN_WARN("{}", what);
}

Result<Request> Engine::read_request(std::span<const std::byte> bytes) const {
  Request request{};
  if (bytes.size() < sizeof request) return Status(Code::kCorrupted, "its request is cut short");
  std::memcpy(&request, bytes.data(), sizeof request);
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

Connector::OnRequest Engine::request_handler() {
  return [this](auto session, auto request, auto reads) {
    on_request(std::move(session), request, reads);
  };
}

void Engine::on_request(std::unique_ptr<Session> session, std::span<const std::byte> bytes,
                        std::uint8_t reads) {
  is_in_use_ = true;
  const auto request = read_request(bytes);
  if (!request) {
    DUNLIN_WARN("refused a connection: {}", request.status().message());
    return session->refuse(Session::Refusal::kForGood);
  }
  const Rank peer(static_cast<int>(request->source));
  Inbound* to = inbound(peer, request->lane);
  Status status;
  if (to == nullptr) {
    auto made = Inbound::create(*this, peer, request->lane);
    status = made.status();
    if (made) {
      to = inbound_.emplace_back(std::move(made).value()).get();
    } else {
      session->refuse(Session::Refusal::kForNow);
    }
  }
  if (status.is_ok()) status = to->accept(std::move(session), *request, reads);
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
  return progress() == 0 && !mail_->has_news();
}

void Engine::revoke(std::uint64_t region, RegisteredMemory registered) {
  for (Connection& connection : connections_) {
    if (connection.lanes[0]) connection.lane(LaneKind::kControl).send_service(kRevoked, region);
  }
  quarantine(std::move(registered));
}

void Engine::quarantine(RegisteredMemory registered) {
  if (registered.memory->is_owned()) quarantine_.push_back(std::move(registered));
}

Status Engine::on_service(Rank peer, std::uint32_t immediate, const Record& record) {
  if (immediate == kLanded) return land(peer, record);
  if (immediate == kRevoked) connections_[peer.index()].imports.revoke(record.sequence);
  return Status::ok();
}

Status Engine::land(Rank peer, const Record& record) {
  const auto landing = record.landing();
  if (!landing) return Status(Code::kCorrupted, "a malformed landing note").with_peer(peer);
  const auto found = gpu_memory_.find(landing->region);
  if (found == gpu_memory_.end()) return Status::ok();  // unregistered meanwhile
  return found->second->land(landing->offset, landing->size).with_peer(peer);
}

}  // namespace dunlin::transport::verbs
