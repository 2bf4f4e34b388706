// Engine: what the lanes, links and regions of one verbs transport share: the ports, the
// connectors, and the connections. It dispatches completions and the connectors' events.
//
// The lanes use the first port. Further ports, and further queue pairs of the first port, carry
// stripes of large puts (rails/rails.h). A transport with rails calls progress_with_rails(), one
// without calls progress().
//
// Owned by the transport. Owner thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "transports/imports.h"
#include "transports/transport.h"
#include "transports/verbs/connect/connection_share.h"
#include "transports/verbs/connect/mail_connector.h"
#include "transports/verbs/connect/wire.h"
#include "transports/verbs/device/handle.h"
#include "transports/verbs/path/inbound.h"
#include "transports/verbs/path/outbound.h"
#include "transports/verbs/rails/port.h"
#include "transports/verbs/rails/rails.h"

namespace dunlin::transport::verbs {

class GpuMemory;

// The sending ends of both lanes to one peer, and the regions imported from it. Lasts as long as
// the transport; links come and go on top of it.
struct Connection {
  std::unique_ptr<Outbound> lanes[kLaneKinds];  // null before the first link
  Imports imports;

  Outbound& lane(LaneKind kind) { return *lanes[index_of(kind)]; }
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(const TransportContext& context);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const TransportContext& context() const { return context_; }
  const Address& address() const { return address_; }
  // Port 0 carries the lanes.
  Port& port(std::size_t index) { return index == 0 ? first_ : *others_[index - 1]; }
  std::size_t ports() const { return 1 + others_.size(); }
  // Whether large puts are striped, because there is more than one queue pair for them.
  bool has_rails() const { return ports() * queue_pairs_ > 1; }
  // Whether a connection to the peer is possible. Whether there is a route shows only later.
  Status reach(const Address& peer) const;
  // The connector for connections between this port and the peer's port of the same index.
  Connector& connector(const Address& peer, const Port& port);
  // Reads the addresses of a port again, for a connection that is reestablished: they may be others
  // than before the link was down.
  void refresh(Port& port);
  std::uint32_t queue_depth() const { return queue_depth_; }
  std::uint64_t stripe_above() const { return stripe_above_; }

  // The connections that this process has made, and those that peers have made to it.
  ConnectionShare<Outbound>& own_share() { return own_share_; }
  ConnectionShare<Inbound>& peers_share() { return peers_share_; }
  // Whether lanes are connected when their links are made, because there are places for the lanes
  // to all peers. Otherwise they are connected when they are first used.
  bool connects_at_once() const;
  // Starts the lane once there is a place in its own share. Lanes get places in the order in which
  // they began to wait.
  void add_waiting(Outbound& lane);
  // The device or the host has no room for another queue pair: asks an idle connection of either
  // share to be given up.
  void relieve();
  // The lane needs no place, and waits for none.
  void remove_from_places(const Outbound& lane);

  // Returns the connection to the peer, and begins it if there is none.
  Result<Connection*> connect(Rank peer, const Address& address);
  // Destroys the queue pairs of a peer that is gone, after it has taken what has arrived. So the
  // device lets nothing more of that peer in. It cannot connect again.
  void end(Rank peer);
  // Whether there has been a connection to or from any peer.
  bool is_in_use() const { return is_in_use_; }
  // Progresses the first port alone. A transport without rails calls it.
  std::size_t progress();
  std::size_t progress_with_rails();
  bool arm();
  void disarm();
  std::vector<int> wait_fds() const;

  // Progresses until `is_over()` returns true, but for at most `grace` of real time.
  // drain_completions() does not take the connectors' events, so that it can be called while one of
  // these is dispatched.
  template <typename IsOver>
  void drain(IsOver&& is_over, Duration grace) {
    poll_until(is_over, grace, [this] {
      has_event_poll_due_ = true;
      return progress_with_rails();
    });
  }
  template <typename IsOver>
  void drain_completions(IsOver&& is_over, Duration grace) {
    poll_until(is_over, grace, [this] { return take_completions_of_all(); });
  }

  // Takes completions until there are none. Must not be called while a completion is dispatched.
  void take_all_completions() {
    while (take_completions_of_all() != 0) {
    }
  }

  // Changes the number of ends that are connecting, or will connect again. While there are any,
  // every turn of progress takes the connectors' events.
  void count_restless(int change) { restless_ += change; }
  // Changes the number of lanes that read a peer's landed count again and again. No event announces
  // the result, so no thread sleeps while there are such lanes.
  void count_landing_waits(int change) {
    landing_waits_ += change;
    next_poll_ = {};
  }

  // Logs the message the first time. The errors of waits name only the peer, not the device.
  void report_gone_device(const std::string& what);

  std::uint64_t next_region() { return next_region_++; }
  // Tells the peers that a region of this process was deregistered. Writes that are in progress
  // cannot be stopped, so memory that Dunlin allocated stays registered, and unused, until they
  // have arrived or were given up (quarantine()). Memory that was wrapped is deregistered at once;
  // a write in progress then breaks its queue pair.
  void revoke(std::uint64_t region);
  void quarantine(RegisteredMemory registered);
  // Whether a queue pair has hung that has returned nothing for so long, while the next completion
  // takes so many bytes.
  static bool has_hung(ibv_qp* queue_pair, Duration silence, std::uint64_t bytes);
  // Keeps memory that something may still use until the transport is destroyed.
  void keep(RegisteredMemory registered) { kept_.push_back(std::move(registered)); }
  // GPU memory that landing notes may be for, by the number of its region.
  void add_gpu_memory(std::uint64_t region, GpuMemory& memory) { gpu_memory_[region] = &memory; }
  void remove_gpu_memory(std::uint64_t region) { gpu_memory_.erase(region); }
  // Carries out a service message of a peer. An error means that bytes of the peer could not be
  // made visible to a GPU.
  Status on_service(Rank peer, std::uint32_t immediate, const Record& record);

 private:
  using InboundKey = std::tuple<int, LaneKind, std::uint8_t>;  // rank, lane, rail
  explicit Engine(const TransportContext& context);
  Status start();
  Status open_ports(const std::vector<DeviceAddress>& chosen);
  // The number of rails to the peer. 0 if one queue pair carries everything.
  std::size_t rails_to(const Address& peer) const;
  // Whether to take events in this turn of progress.
  inline bool is_poll_due();
  // What every turn of progress does before and after it takes completions.
  inline void begin_turn();
  inline void end_turn(std::size_t events);
  std::size_t take_completions();
  std::size_t take_completions_of_all();
  void take_events();
  // Steps what depends on time: device events, lanes that connect again, probes.
  void step(TimePoint now);
  void take_device_events(Port& port);
  void give_places(TimePoint now);
  static InboundKey key_of(const Request& request);
  Inbound* inbound(const Request& request) const;
  // Whether a lane of the peer is connected to this process.
  bool is_connected_from(int peer) const;
  // Connects the control lane if messages wait for that, and the peer writes to this process.
  void send_services(int peer, Connection& connection);
  bool is_reachable(const Address& peer, const Port& port) const;
  template <typename Function>
  void for_each_port(Function&& function) {
    for (std::size_t index = 0; index < ports(); ++index) function(port(index));
  }
  // Calls the function for each lane and each of its rails.
  template <typename Function>
  void for_each_lane(Function&& function) {
    for (const auto& [peer, connection] : connections_) {
      for (const auto& lane : connection.lanes) {
        if (!lane) continue;
        if (Rails* const rails = lane->rails()) rails->for_each(function);
        function(*lane);
      }
    }
  }
  Connector::OnRequest request_handler();
  void on_request(std::unique_ptr<Session> session, std::size_t port,
                  std::span<const std::byte> bytes, std::uint8_t reads);
  Result<Request> read_request(std::size_t port, std::span<const std::byte> bytes) const;
  // Call it when the state of a peer has changed.
  void check_peers();
  Status land(Rank peer, const Record& record);

  Port first_;  // the first member, so that the offset of its completion queues is small
  TransportContext context_;
  Address address_;
  std::vector<std::unique_ptr<Port>> others_;
  std::unique_ptr<MailConnector> mail_;
  const std::uint32_t queue_depth_;
  const std::size_t queue_pairs_;  // for stripes, per port
  const std::uint64_t stripe_above_;
  std::vector<Outbound*> striping_;  // the lanes that have rails
  struct Quarantined {
    RegisteredMemory registered;
    TimePoint until;
  };
  std::deque<Quarantined> quarantine_;  // the first ends first
  std::vector<RegisteredMemory> kept_;
  std::unordered_map<std::uint64_t, GpuMemory*> gpu_memory_;  // by region number
  struct Waiting {
    Outbound* lane;
    TimePoint until;  // then it is started even beyond the share's size
  };
  std::deque<Waiting> waiting_;
  TimePoint next_places_{};  // when ends are next asked to leave for the lanes that wait
  ConnectionShare<Outbound> own_share_;
  ConnectionShare<Inbound> peers_share_;
  std::map<InboundKey, std::unique_ptr<Inbound>> inbound_;
  std::map<int, Connection> connections_;  // by rank
  std::uint64_t next_region_ = 1;
  std::uint64_t seen_peers_ = 0;
  bool is_in_use_ = false;
  bool has_reported_device_ = false;
  bool has_reported_lack_ = false;
  int restless_ = 0;
  int landing_waits_ = 0;
  bool has_gone_peers_ = false;
  TimePoint next_probe_{};
  bool has_event_poll_due_ = false;  // the next turn takes events
  std::uint32_t turns_ = 0;
  TimePoint next_poll_{};  // of events
};

}  // namespace dunlin::transport::verbs
