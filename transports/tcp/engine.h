// Engine: what the lanes, links and regions of one tcp transport share: the poller, the listener,
// the table of regions, and what this process knows of each peer.
//
// Owned by the transport. Owner thread only.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "transports/imports.h"
#include "transports/tcp/address.h"
#include "transports/tcp/inbox.h"
#include "transports/tcp/listener.h"
#include "transports/tcp/poller.h"
#include "transports/tcp/region.h"
#include "transports/transport.h"

namespace dunlin::transport::tcp {

class TcpLane;

// One peer that this process has connected to, or that has connected to it. It lasts as long as the
// transport; links come and go.
struct Peer {
  Peer(Engine& engine, Rank its_rank)
      : rank(its_rank),
        inboxes{{{engine, its_rank, LaneKind::kData}, {engine, its_rank, LaneKind::kControl}}} {}

  Rank rank;
  std::array<Inbox, kLaneKinds> inboxes;
  Imports imports;
  bool has_closed = false;  // the peer's transport has ended, and has said so
  // A lane of this process was closed in the middle of a payload, which has ended a connection that
  // the peer's lane shared. It connects again, to be told that this end closes.
  bool was_cut = false;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(const TransportContext& context);
  // Prepares to connect. Before open(), only regions() and outline() can be used, and progress()
  // does nothing.
  Status open();
  // Listens where a peer with this outline can reach this process.
  Status face(std::span<const std::byte> outline);
  // The address of a process that does not listen yet: its endpoints have no ports.
  Bytes outline() const { return outline_.encode(); }
  // Tells the peers that this process closes its end.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const TransportContext& context() const { return context_; }
  Credentials credentials() const { return {context_.key, context_.config.tcp_encryption}; }
  Poller& poller() { return *poller_; }
  RegionTable& regions() { return regions_; }
  const Address& address() const { return address_; }
  // The number of a new lane of this process. It grows.
  std::uint64_t next_incarnation() { return ++last_incarnation_; }
  // The number of a connection that one of them makes, or joins. It grows.
  std::uint64_t next_attempt() { return ++last_attempt_; }
  Peer& peer(Rank rank);

  // The lanes that progress() steps.
  void add(TcpLane& lane) { lanes_.push_back(&lane); }
  void remove(TcpLane& lane) { std::erase(lanes_, &lane); }
  // Makes progress() step the lanes soon, because one of them connects.
  void want_steps() { wants_steps_ = true; }
  // Stops writing to a region that is no longer registered, and tells all peers.
  void revoke(std::uint64_t region);

  // Ends the connections of a peer that is gone, and takes nothing more from it. The peer cannot
  // connect again (see admit()).
  void end(Rank peer);

  bool is_in_use() const { return has_peers_ || (listener_ && listener_->has_guests()); }
  std::size_t progress();

  // Progresses until `is_over()` returns true, but for at most `grace` of real time.
  template <typename IsOver>
  void drain(IsOver&& is_over, Duration grace) {
    poll_until(is_over, grace, [this] { return progress(); });
  }

 private:
  // The clock is read in one of this many turns only, unless a lane connects.
  static constexpr std::uint32_t kTurnsPerStep = 256;

  explicit Engine(const TransportContext& context);
  void check_peers();
  void step_lanes();
  Status admit(Admitted admitted);

  TransportContext context_;
  RegionTable regions_;
  std::unique_ptr<Poller> poller_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null: unknown
  std::unique_ptr<Listener> listener_;
  std::vector<TcpLane*> lanes_;
  Address outline_;
  Address address_;
  std::uint64_t last_incarnation_ = 0;
  std::uint64_t last_attempt_ = 0;
  std::uint64_t seen_peers_ = 0;
  std::uint32_t turns_ = 0;
  bool has_peers_ = false;
  bool wants_steps_ = false;
};

}  // namespace dunlin::transport::tcp
