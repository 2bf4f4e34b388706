// Engine: what the lanes, links and regions of one verbs transport share: the ports, the
// connectors, and the connections. Dispatches completions and the connectors' events.
//
// The lanes use the first port. Others, and further queue pairs of the first, carry stripes of
// large puts (rails.h): who has such looks after them by progress_with_rails().
//
// Owned by the transport. Owner thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transports/imports.h"
#include "transports/transport.h"
#include "transports/verbs/handle.h"
#include "transports/verbs/inbound.h"
#include "transports/verbs/mail_connector.h"
#include "transports/verbs/outbound.h"
#include "transports/verbs/port.h"
#include "transports/verbs/rails.h"
#include "transports/verbs/wire.h"

namespace dunlin::transport::verbs {

class GpuMemory;

// Everything towards one peer. Lasts as long as the transport; links come and go on top of it.
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
  // The one that carries the lanes is 0.
  Port& port(std::size_t index) { return index == 0 ? first_ : *others_[index - 1]; }
  std::size_t ports() const { return 1 + others_.size(); }
  // Whether large puts are striped here: not if there is one queue pair for them.
  bool has_rails() const { return ports() * queue_pairs_ > 1; }
  // Whether there can be a connection to it; that there is a route shows later.
  Status reach(const Address& peer) const;
  // That makes the connections between the ports of that index, here and at the peer.
  Connector& connector(const Address& peer, const Port& port);
  std::uint32_t queue_depth() const { return queue_depth_; }
  std::uint64_t stripe_above() const { return stripe_above_; }

  // The connection to the peer, begun if there is none.
  Result<Connection*> connect(Rank peer, const Address& address);
  // Whether any peer was connected to, or has connected.
  bool is_in_use() const { return is_in_use_; }
  // Of the first port alone; what there is without rails.
  std::size_t progress();
  std::size_t progress_with_rails();
  bool arm();
  void disarm();
  std::vector<int> wait_fds() const;

  // Progresses until `is_over()` or for `grace` of real time. drain_completions() leaves the
  // connectors alone: for use while their events are dealt with.
  template <typename IsOver>
  void drain(IsOver&& is_over, Duration grace) {
    poll_until(is_over, grace, [this] {
      looks_for_events_ = true;
      return progress_with_rails();
    });
  }
  template <typename IsOver>
  void drain_completions(IsOver&& is_over, Duration grace) {
    poll_until(is_over, grace, [this] { return take_completions_of_all(); });
  }

  // Until there are none; not for use while one is dealt with.
  void take_all_completions() {
    while (take_completions_of_all() != 0) {
    }
  }

  // `change` in the number of those that are connecting or will be: events are looked for at every
  // turn while there are any.
  void count_restless(int change) { restless_ += change; }
  // Lanes that ask a peer again and again, since nothing announces the answer: nobody sleeps then.
  void count_landing_waits(int change) {
    landing_waits_ += change;
    next_look_ = {};
  }

  // Logs it, once: who waits for a peer's message is told of the peer only.
  void report_gone_device(const std::string& what);

  std::uint64_t next_region() { return next_region_++; }
  // Tells the peers that this region of ours is gone. Writes that are on their way ask nobody, so
  // owned memory stays registered, and unused, until the transport goes. Wrapped memory can't stay:
  // such a write breaks the queue pair that it comes through.
  void revoke(std::uint64_t region);
  void quarantine(RegisteredMemory registered) { quarantine_.push_back(std::move(registered)); }
  // Regions that peers' landing notes are for.
  void add_gpu_memory(std::uint64_t region, GpuMemory& memory) { gpu_memory_[region] = &memory; }
  void remove_gpu_memory(std::uint64_t region) { gpu_memory_.erase(region); }
  // From a peer. Not ok: what it has put is not where it belongs.
  Status on_service(Rank peer, std::uint32_t immediate, const Record& record);

 private:
  explicit Engine(const TransportContext& context);
  Status start();
  Status open_ports(const std::vector<DeviceAddress>& chosen);
  // How many rails towards the peer; 0: none, one queue pair does it all.
  std::size_t rails_to(const Address& peer) const;
  // Whether to look for events in this turn.
  inline bool is_look_due();
  // What is done in every turn beside taking completions, before and after it.
  inline void look();
  inline void look_back(std::size_t events);
  std::size_t take_completions();
  std::size_t take_completions_of_all();
  void take_events();
  // What has to be looked after by time.
  void tend(TimePoint now);
  void take_device_events(Port& port);
  Inbound* inbound(const Request& request) const;
  bool goes_by_manager(const Address& peer, const Port& port) const;
  bool is_reachable(const Address& peer, const Port& port) const;
  template <typename Function>
  void for_each_port(Function&& function) {
    for (std::size_t index = 0; index < ports(); ++index) function(port(index));
  }
  // And its rails.
  template <typename Function>
  void for_each_lane(Function&& function) {
    for (const Connection& connection : connections_) {
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
  // For a version of the peers that was not seen yet.
  void watch_peers();
  Status land(Rank peer, const Record& record);

  Port first_;  // first of all, so that finding its queues costs nothing
  TransportContext context_;
  Address address_;
  std::vector<std::unique_ptr<Port>> others_;
  std::unique_ptr<MailConnector> mail_;
  const std::uint32_t queue_depth_;
  const std::size_t queue_pairs_;  // per port, for stripes
  const std::uint64_t stripe_above_;
  std::vector<Outbound*> striping_;  // the lanes that have rails
  std::vector<RegisteredMemory> quarantine_;
  std::unordered_map<std::uint64_t, GpuMemory*> gpu_memory_;  // by number of the region
  std::vector<std::unique_ptr<Inbound>> inbound_;
  std::vector<Connection> connections_;  // by rank
  std::uint64_t next_region_ = 1;
  std::uint64_t seen_peers_ = 0;
  bool is_in_use_ = false;
  bool has_reported_device_ = false;
  int restless_ = 0;
  int landing_waits_ = 0;
  bool has_gone_peers_ = false;
  TimePoint next_probe_{};
  bool looks_for_events_ = false;
  std::uint32_t turns_ = 0;
  TimePoint next_look_{};
};

}  // namespace dunlin::transport::verbs
