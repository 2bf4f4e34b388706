#include "transports/tcp/engine.h"

#include <sodium.h>

#include <algorithm>

#include "runtime/topology.h"
#include "transports/tcp/lane.h"

namespace dunlin::transport::tcp {

Engine::Engine(const TransportContext& context)
    : context_(context), peers_(static_cast<std::size_t>(context.peers.size())) {}

Result<std::unique_ptr<Engine>> Engine::create(const TransportContext& context) {
  if (sodium_init() < 0)
    return Status(Code::kUnavailable, "libsodium found no source of randomness");
  std::unique_ptr<Engine> engine(new Engine(context));
  DUNLIN_ASSIGN(auto endpoints, interface_addresses(context.config.tcp_interface));
  if (endpoints.size() > kMostOutlined) endpoints.resize(kMostOutlined);
  engine->outline_.wants_encryption = context.config.tcp_encryption;
  engine->outline_.host = host_identity(context.config.host_id);
  engine->outline_.endpoints = std::move(endpoints);
  if (engine->outline().size() > Transport::kLargestOutline)
    return Status(Code::kInvalidArgument, "DUNLIN_HOST_ID is too long");
  DUNLIN_ASSIGN(engine->poller_, Poller::create());
  return engine;
}

Status Engine::open() {
  address_ = outline_;
  randombytes_buf(&address_.token, sizeof address_.token);
  address_.cells = context_.board.size();
  address_.endpoints.clear();
  const Listener::Options options{credentials(), context_.self, context_.peers.size(),
                                  address_.token};
  listener_ = std::make_unique<Listener>(options, *poller_, context_.clock,
                                         [this](Admitted it) { return admit(std::move(it)); });
  return Status::ok();
}

Status Engine::face(std::span<const std::byte> outline) {
  DUNLIN_ASSIGN(const Address peer, Address::decode(outline));
  // A user that names an interface knows which one leads to the peers.
  const bool is_named = !context_.config.tcp_interface.empty();
  DUNLIN_TRY(listener_->listen_at(is_named ? outline_.endpoints : outline_.facing(peer)));
  address_.endpoints = listener_->endpoints();
  return Status::ok();
}

Engine::~Engine() {
  const auto for_each_inbox = [this](auto&& function) {
    for (const auto& peer : peers_) {
      if (!peer) continue;
      for (Inbox& inbox : peer->inboxes) function(*peer, inbox);
    }
  };
  for_each_inbox([](Peer&, Inbox& inbox) { inbox.announce_closing(); });
  // The peers' lanes end their connections when they have read it.
  const auto is_awaited = [&] {
    bool result = false;
    for_each_inbox([&](const Peer& peer, const Inbox& inbox) {
      const bool is_alive = context_.peers.state(peer.rank) == PeerState::kAlive;
      result = result || (is_alive && (inbox.is_connected() || peer.was_cut));
    });
    return result;
  };
  drain([&] { return !is_awaited(); }, kShutdownGrace);
}

Peer& Engine::peer(Rank rank) {
  auto& peer = peers_[rank.index()];
  if (!peer) {
    peer = std::make_unique<Peer>(*this, rank);
    has_peers_ = true;
  }
  return *peer;
}

Status Engine::admit(Admitted admitted) {
  const Rank source = admitted.purpose.source;
  const LaneKind kind = admitted.purpose.lane;
  // What counts as dead cannot come back.
  DUNLIN_TRY(context_.peers.check(source));
  DUNLIN_TRY(peer(source).inboxes[index_of(kind)].adopt(std::move(admitted)));
  for (TcpLane* const lane : lanes_) lane->on_accepted(source, kind);
  return Status::ok();
}

void Engine::revoke(std::uint64_t region) {
  for (const auto& peer : peers_) {
    if (!peer) continue;
    for (Inbox& inbox : peer->inboxes) inbox.revoke(region);
  }
}

std::size_t Engine::progress() {
  if (!listener_) return 0;
  const std::size_t events = poller_->poll();
  listener_->settle();
  check_peers();
  if (wants_steps_ || ++turns_ % kTurnsPerStep == 0) step_lanes();
  return events;
}

void Engine::check_peers() {
  if (context_.peers.version() == seen_peers_) return;
  seen_peers_ = context_.peers.version();
  for (TcpLane* const lane : lanes_) lane->check_peer();
  for (const auto& peer : peers_) {
    // A peer that has left may have sent something before; a dead one must not write any more.
    if (!peer || context_.peers.state(peer->rank) != PeerState::kDead) continue;
    for (Inbox& inbox : peer->inboxes) inbox.end();
  }
}

void Engine::end(Rank rank) {
  const auto& peer = peers_[rank.index()];
  if (!peer) return;
  for (TcpLane* const lane : lanes_) lane->check_peer();
  for (Inbox& inbox : peer->inboxes) inbox.end();
}

void Engine::step_lanes() {
  wants_steps_ = false;
  const TimePoint now = context_.clock.now();
  for (TcpLane* const lane : lanes_) wants_steps_ = lane->step(now) || wants_steps_;
}

}  // namespace dunlin::transport::tcp
