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
#include "transports/verbs/device/device.h"
#include "transports/verbs/device/fork.h"
#include "transports/verbs/memory/gpu_memory.h"
#include "transports/verbs/region.h"

namespace dunlin::transport::verbs {
Engine::Engine(const TransportContext& context)
    : context_(context),
      queue_depth_(static_cast<std::uint32_t>(context.config.verbs_queue_depth)),
      queue_pairs_(static_cast<std::size_t>(context.config.verbs_queue_pairs)),
      stripe_above_(static_cast<std::uint64_t>(context.config.verbs_stripe_above)),
      own_share_(static_cast<std::size_t>(context.config.verbs_max_connections / 2)),
      peers_share_(static_cast<std::size_t>((context.config.verbs_max_connections + 1) / 2)) {}

Result<std::unique_ptr<Engine>> Engine::create(const TransportContext& context) {
  std::unique_ptr<Engine> engine(new Engine(context));
  DUNLIN_TRY(engine->start());
  return engine;
}

Status Engine::start() {
  const Config& config = context_.config;
  DUNLIN_ASSIGN(const Vicinity vicinity, find_vicinity(config));
  DUNLIN_ASSIGN(auto addresses, find_addresses(config.verbs_device,
                                               static_cast<int>(config.verbs_gid_index), vicinity));
  if (config.verbs_connect == VerbsConnect::kManager)
    std::erase_if(addresses, [](const DeviceAddress& address) { return address.ip.empty(); });
  if (addresses.empty()) {
    return {Code::kUnavailable,
            "no active RDMA port has an IP address, which DUNLIN_VERBS_CONNECT=manager needs"};
  }
  if (context_.mail.fd(MailTopic::kVerbs) < 0)
    return {Code::kResourceExhausted, "no descriptor for messages through the bootstrap"};
  prepare_for_fork();  // there is a device, and nothing is registered yet
  DUNLIN_TRY(open_ports(
      choose(addresses, config.verbs_device, context_.local_rank, rails_wanted(config))));
  randombytes_buf(&address_.token, sizeof address_.token);
  address_.atomics = atomics_of(first_.limits());
  std::vector<LocalPort> ports;
  for_each_port([&](Port& port) {
    address_.ports.push_back(port.address());
    ports.push_back(port.local());
  });
  mail_ = std::make_unique<MailConnector>(context_.mail, context_.self, address_.token,
                                          Delivery(context_.config), std::move(ports),
                                          request_handler());
  return Status::ok();
}

Status Engine::open_ports(const std::vector<DeviceAddress>& chosen) {
  const auto rails = static_cast<std::uint32_t>(queue_pairs_);
  const bool is_striping = chosen.size() * rails > 1;
  DUNLIN_TRY(first_.open(context_, chosen.front(), 0, {1 + (is_striping ? rails : 0), 1},
                         request_handler()));
  for (std::size_t index = 1; index < chosen.size(); ++index) {
    auto port = std::make_unique<Port>();
    if (Status status = port->open(context_, chosen[index], index, {rails, 0}, request_handler());
        !status.is_ok())
      return std::move(status).with_context(chosen[index].device);
    others_.push_back(std::move(port));
  }
  return Status::ok();
}

bool Engine::is_reachable(const Address& peer, const Port& port) const {
  return can_connect(address_.ports[port.index()], peer.ports[port.index()]);
}

Status Engine::reach(const Address& peer) const {
  if (is_reachable(peer, first_)) return Status::ok();
  const PortAddress& own = address_.ports[0];
  const PortAddress& other = peer.ports[0];
  if (own.is_infiniband == other.is_infiniband) {
    return {Code::kUnavailable,
            fmt::format("the peer's port has the address {} and this rank's has {}: give both an "
                        "IPv4 address, or both an IPv6 address only",
                        other.ip, own.ip)};
  }
  return {Code::kUnavailable, own.is_infiniband
                                  ? "the peer's port is Ethernet and this rank's is InfiniBand"
                                  : "the peer's port is InfiniBand and this rank's is Ethernet"};
}

Connector& Engine::connector(const Address& peer, const Port& port) {
  if (is_by_manager(address_.ports[port.index()], peer.ports[port.index()])) return *port.manager();
  return *mail_;
}

void Engine::refresh(Port& port) {
  port.refresh();
  mail_->update(port.index(), port.local());
}

std::size_t Engine::rails_to(const Address& peer) const {
  if (!has_rails()) return 0;
  std::size_t both = 1;
  while (both < ports() && both < peer.ports.size() && is_reachable(peer, *others_[both - 1]))
    ++both;
  if (both < std::max(ports(), peer.ports.size())) {
    DUNLIN_INFO("verbs: stripes use {} of this rank's {} and the peer's {} ports", both, ports(),
                peer.ports.size());
  }
  return both * queue_pairs_ > 1 ? both * queue_pairs_ : 0;
}

std::vector<int> Engine::wait_fds() const {
  std::vector<int> fds;
  first_.append_wait_fds(fds);
  for (const auto& port : others_) port->append_wait_fds(fds);
  fds.push_back(mail_->fd());
  return fds;
}

Engine::~Engine() {
  inbound_.clear();  // first, because it takes pending messages, which may be for the connections
  connections_.clear();
  quarantine_.clear();
  kept_.clear();
  mail_.reset();
  for_each_port([](Port& port) { port.close(); });
}

Result<Connection*> Engine::connect(Rank peer, const Address& address) {
  is_in_use_ = true;
  Connection& connection = connections_[peer.value()];
  if (connection.lanes[0] == nullptr) {
    std::unique_ptr<Outbound> made[kLaneKinds];
    for (const LaneKind kind : kBothLanes) {
      auto& lane = made[index_of(kind)];
      lane = std::make_unique<Outbound>(*this, first_, peer, kind, 0);
      DUNLIN_TRY(lane->connect(address));
    }
    // Only the data lane has rails.
    Outbound& data = *made[index_of(LaneKind::kData)];
    if (const std::size_t rails = rails_to(address); rails != 0)
      data.set_rails(Rails::connect(*this, peer, address, rails / queue_pairs_, rails));
    if (data.rails() != nullptr) striping_.push_back(&data);
    std::move(std::begin(made), std::end(made), connection.lanes);
  }
  for (const LaneKind kind : kBothLanes) DUNLIN_TRY(connection.lane(kind).failure());
  return &connection;
}

[[gnu::hot]] std::size_t Engine::progress() {
  begin_turn();
  const std::size_t events = take_completions();
  end_turn(events);
  return events;
}

std::size_t Engine::progress_with_rails() {
  begin_turn();
  std::size_t events = take_completions_of_all();
  for (Outbound* const lane : striping_) events += lane->take_stripes();
  end_turn(events);
  return events;
}

inline bool Engine::is_poll_due() {
  if (restless_ > 0 || has_event_poll_due_ || mail_->has_news()) return true;
  // The clock is read only in every kTurnsPerClock-th turn.
  if (is_in_use_ && ++turns_ % kTurnsPerClock != 0) return false;
  return context_.clock.now() >= next_poll_;
}

inline void Engine::begin_turn() {
  if (!is_poll_due()) return;
  take_events();
  const TimePoint now = context_.clock.now();
  next_poll_ = now + (landing_waits_ > 0 ? kLandingInterval : kEventInterval);
  step(now);
}

inline void Engine::end_turn(std::size_t events) {
  if (context_.peers.version() != seen_peers_) check_peers();
  // Everything that arrived before those peers were gone has been taken by now.
  if (events == 0 && std::exchange(has_gone_peers_, false)) {
    std::erase_if(inbound_,
                  [&](const auto& one) { return !context_.peers.is_present(one.second->peer()); });
  }
}

std::size_t Engine::take_completions() {
  // Data comes last, so that what it brings is still in the cache when the caller checks it.
  const std::size_t events = first_.poll(LaneKind::kControl);
  return events + first_.poll(LaneKind::kData);
}

std::size_t Engine::take_completions_of_all() {
  std::size_t events = take_completions();
  for (const auto& port : others_) events += port->poll(LaneKind::kData);
  return events;
}

void Engine::step(TimePoint now) {
  const bool probes = now >= next_probe_;
  if (probes) next_probe_ = now + kProbeInterval;
  if (probes) for_each_port([this](Port& port) { take_device_events(port); });
  while (probes && !quarantine_.empty() && now >= quarantine_.front().until)
    quarantine_.pop_front();
  if (probes) {
    for (const auto& [key, inbound] : inbound_) {
      inbound->look_for_hang(now);
      inbound->drop_broken();
    }
    own_share_.make_room(0, now);
    peers_share_.make_room(0, now);
  }
  if (!waiting_.empty()) give_places(now);
  if (!probes && restless_ == 0 && landing_waits_ == 0) return;
  // Only lanes with a place have anything to do. Some leave their places meanwhile.
  const auto& lanes = own_share_.ends();
  for (std::size_t i = lanes.size(); i-- > 0;) {
    if (i < lanes.size()) lanes[i]->step(now);
    if (probes && i < lanes.size()) lanes[i]->probe(now);
  }
}

bool Engine::connects_at_once() const {
  const std::size_t of_a_peer = kLaneKinds + (has_rails() ? ports() * queue_pairs_ : 0);
  return static_cast<std::size_t>(context_.peers.size()) * of_a_peer <= own_share_.most();
}

void Engine::add_waiting(Outbound& lane) {
  const TimePoint now = context_.clock.now();
  waiting_.push_back({&lane, now + kPlaceTimeout});
  next_places_ = now;
  give_places(now);
}

void Engine::relieve() {
  const TimePoint now = context_.clock.now();
  own_share_.ask_one(now);
  peers_share_.ask_one(now);
}

void Engine::remove_from_places(const Outbound& lane) {
  own_share_.remove(lane);
  std::erase_if(waiting_, [&](const Waiting& one) { return one.lane == &lane; });
}

void Engine::give_places(TimePoint now) {
  if (!own_share_.has_room() && now < next_places_) return;
  next_places_ = now + kEventInterval;
  while (!waiting_.empty()) {
    if (!own_share_.has_room()) own_share_.make_room(waiting_.size(), now);
    const bool is_late = now >= waiting_.front().until;
    // What is asked to leave may have done so, if this thread has not looked for a while.
    if (!own_share_.has_room() && is_late) take_all_completions();
    if (waiting_.empty() || (!own_share_.has_room() && !is_late)) return;
    Outbound& next = *waiting_.front().lane;
    waiting_.pop_front();
    own_share_.add(next);
    next.start();
  }
}

void Engine::take_events() {
  has_event_poll_due_ = false;
  for_each_port([](Port& port) {
    if (port.manager() != nullptr) port.manager()->take_events();
  });
  mail_->take_events();
}

// Only events of the whole device matter here. Connections report their own failures.
void Engine::take_device_events(Port& port) {
  ibv_async_event event{};
  while (ibv_get_async_event(port.device(), &event) == 0) {
    const ibv_event_type type = event.event_type;
    ibv_ack_async_event(&event);
    const char* const name = ibv_get_device_name(port.device()->device);
    const std::string what =
        type == IBV_EVENT_DEVICE_FATAL
            ? fmt::format("the RDMA device {} was removed", name)
            : fmt::format("RDMA device {}: {}", name, ibv_event_type_str(type));
    if (type != IBV_EVENT_DEVICE_FATAL && type != IBV_EVENT_CQ_ERR) {
      DUNLIN_DEBUG("{}", what);
      continue;
    }
    for_each_lane([&](Outbound& lane) {
      if (lane.device() == port.device())
        lane.on_event({.type = EventType::kDeviceGone, .reason = what});
    });
  }
}

void Engine::quarantine(RegisteredMemory registered) {
  const Duration time = kGivenUpFactor * Delivery(context_.config).endurance();
  quarantine_.push_back({std::move(registered), context_.clock.now() + time});
}

bool Engine::has_hung(ibv_qp* queue_pair, Duration silence, std::uint64_t bytes) {
  const Duration transfer = std::chrono::seconds(bytes / kSlowestQueuePair);
  if (silence <= kShortestHang + transfer) return false;
  const auto endurance = endurance_of(queue_pair);
  return endurance && silence > kGivenUpFactor * *endurance + transfer;
}

void Engine::report_gone_device(const std::string& what) {
  if (!std::exchange(has_reported_device_, true)) DUNLIN_WARN("{}", what);
}

Result<Request> Engine::read_request(std::size_t port, std::span<const std::byte> bytes) const {
  DUNLIN_ASSIGN(
      const Request request,
      Request::decode(bytes, address_.token, static_cast<std::size_t>(context_.peers.size())));
  const Rank peer(static_cast<int>(request.source));
  if (!context_.peers.is_present(peer)) return context_.peers.check(peer);
  if (request.rail == 0 && port != 0)
    return Status(Code::kCorrupted, "its request came through another port than the first");
  const Inbound* const known = inbound(request);
  if (request.is_resumed != 0 && known == nullptr)
    return Status(Code::kCorrupted, "there is no connection to resume");
  if (known != nullptr && known->port().index() != port)
    return Status(Code::kCorrupted, "its request came through another port than before");
  return request;
}

Connector::OnRequest Engine::request_handler() {
  return [this](auto session, auto port, auto request, auto reads) {
    on_request(std::move(session), port, request, reads);
  };
}

void Engine::on_request(std::unique_ptr<Session> session, std::size_t port,
                        std::span<const std::byte> bytes, std::uint8_t reads) {
  is_in_use_ = true;
  const auto request = read_request(port, bytes);
  if (!request) {
    DUNLIN_WARN("refused a connection: {}", request.status().message());
    return session->refuse(Session::Refusal::kForGood);
  }
  const Rank peer(static_cast<int>(request->source));
  if (!context_.peers.is_present(peer)) return session->refuse(Session::Refusal::kForGood);
  auto& to = inbound_[key_of(*request)];
  if (to == nullptr) {
    to = std::make_unique<Inbound>(*this, this->port(port), peer, request->lane, request->rail);
  }
  // Before it may be refused, so that there is room when the peer asks again.
  peers_share_.make_room(to->is_connected() ? 0 : 1, context_.clock.now());
  const Status status = to->accept(std::move(session), *request, reads);
  if (!status.is_ok()) {
    const std::string what =
        fmt::format("cannot accept a connection of rank {}: {}", peer.value(), status.to_string());
    if (status.code() != Code::kResourceExhausted) {
      DUNLIN_WARN("{}", what);
      return;
    }
    relieve();
    // The peer asks again and again.
    if (std::exchange(has_reported_lack_, true)) {
      DUNLIN_DEBUG("{}", what);
    } else {
      DUNLIN_WARN("{}; it asks again", what);
    }
    return;
  }
  if (const auto found = connections_.find(peer.value()); found != connections_.end())
    send_services(peer.value(), found->second);
}

Engine::InboundKey Engine::key_of(const Request& request) {
  return {static_cast<int>(request.source), request.lane, request.rail};
}

Inbound* Engine::inbound(const Request& request) const {
  const auto found = inbound_.find(key_of(request));
  return found == inbound_.end() ? nullptr : found->second.get();
}

bool Engine::is_connected_from(int peer) const {
  for (auto one = inbound_.lower_bound({peer, LaneKind::kData, 0});
       one != inbound_.end() && std::get<0>(one->first) == peer; ++one) {
    if (one->second->is_connected()) return true;
  }
  return false;
}

void Engine::send_services(int peer, Connection& connection) {
  if (!connection.lanes[0]) return;
  Outbound& control = connection.lane(LaneKind::kControl);
  if (!control.has_waiting_services() || !is_connected_from(peer)) return;
  if (const Status status = control.wake(); !status.is_ok())
    DUNLIN_DEBUG("verbs: a message of the transport waits: {}", status.to_string());
}

void Engine::check_peers() {
  seen_peers_ = context_.peers.version();
  has_gone_peers_ = context_.peers.is_anybody_gone();
  if (has_gone_peers_) take_all_completions();  // operations that they took have completed
  for (const auto& [rank, connection] : connections_) {
    if (context_.peers.is_present(Rank(rank))) continue;
    for (const auto& lane : connection.lanes) {
      if (lane) lane->fail(context_.peers.check(Rank(rank)));
    }
  }
}

void Engine::end(Rank peer) {
  check_peers();
  take_all_completions();
  std::erase_if(inbound_, [peer](const auto& one) { return one.second->peer() == peer; });
}

bool Engine::arm() {
  if (landing_waits_ != 0) return false;
  bool is_armed = true;
  for_each_port([&](Port& port) { is_armed = is_armed && port.arm(); });
  if (!is_armed) return false;
  has_event_poll_due_ = true;
  // Completions from before the queues were armed are not announced.
  return progress_with_rails() == 0 && !mail_->has_news();
}

void Engine::disarm() {
  for_each_port([](Port& port) { port.disarm(); });
  has_event_poll_due_ = true;  // an event may have ended the sleep
}

void Engine::revoke(std::uint64_t region) {
  for (auto& [peer, connection] : connections_) {
    if (!connection.lanes[0]) continue;
    connection.lane(LaneKind::kControl).send_service(kRevoked, region);
    send_services(peer, connection);
  }
}

Status Engine::on_service(Rank peer, std::uint32_t immediate, const Record& record) {
  if (immediate == kLanded) return land(peer, record);
  if (immediate == kRevoked) connections_[peer.value()].imports.revoke(record.sequence);
  return Status::ok();
}

Status Engine::land(Rank peer, const Record& record) {
  const auto landing = record.landing();
  if (!landing) return Status(Code::kCorrupted, "malformed landing note").with_peer(peer);
  const auto found = gpu_memory_.find(landing->region);
  if (found == gpu_memory_.end()) return Status::ok();  // it was deregistered since
  return found->second->land(landing->offset, landing->size).with_peer(peer);
}

}  // namespace dunlin::transport::verbs
