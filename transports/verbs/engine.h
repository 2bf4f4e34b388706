// Engine: what the lanes, links and regions of one verbs transport share: the device, the
// completion queues, the connectors, and the connections. Dispatches completions and the
// connectors' events.
//
// Owned by the transport. Owner thread only.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transports/imports.h"
#include "transports/transport.h"
#include "transports/verbs/cm_connector.h"
#include "transports/verbs/device.h"
#include "transports/verbs/handle.h"
#include "transports/verbs/inbound.h"
#include "transports/verbs/mail_connector.h"
#include "transports/verbs/outbound.h"
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
  const ProtectionDomain& domain() const { return *domain_; }
  // Whether there can be a connection to it; that there is a route shows later.
  Status reach(const Address& peer) const;
  // That makes the connections to the process with this address.
  Connector& connector(const Address& peer);
  std::size_t longest_message() const { return longest_message_; }
  std::uint32_t queue_depth() const { return queue_depth_; }
  // Reads and atomics that a queue pair may have on the way, as their source and as their target.
  std::uint8_t reads() const { return reads_; }

  // The connection to the peer, begun if there is none.
  Result<Connection*> connect(Rank peer, const Address& address);
  // Whether any peer was connected to, or has connected.
  bool is_in_use() const { return is_in_use_; }
  std::size_t progress();
  bool arm();
  void disarm() {
    channel_->drain();
    looks_for_events_ = true;  // they may be what woke us
  }
  std::vector<int> wait_fds() const;

  // Progresses until `is_over()` or for `grace` of real time. drain_completions() leaves the
  // connectors alone: for use while their events are dealt with.
  template <typename IsOver>
  void drain(IsOver&& is_over, Duration grace) {
    poll_until(is_over, grace, [this] {
      looks_for_events_ = true;
      return progress();
    });
  }
  template <typename IsOver>
  void drain_completions(IsOver&& is_over, Duration grace) {
    poll_until(is_over, grace, [this] { return take_completions(); });
  }

  // Until there are none; not for use while one is dealt with.
  void take_all_completions() {
    while (take_completions() != 0) {
    }
  }

  // Makes the session's RC queue pair, of which the endpoint gets the completions. Less inline
  // data than `room` asks for may be granted.
  Status make_queue_pair(Session& session, LaneKind kind, ibv_qp_cap room, Endpoint& endpoint);
  // Before the session goes: the endpoint gets no more completions. `room` as above.
  void detach(Session& session, LaneKind kind, const ibv_qp_cap& room);
  // `change` in the number of those that are connecting or will be: events are looked for at every
  // turn while there are any.
  void count_restless(int change) { restless_ += change; }

  // Logs it, once: who waits for a peer's message is told of the peer only.
  void report_gone_device(const std::string& what);

  std::uint64_t next_region() { return next_region_++; }
  // Tells the peers that this region of ours is gone. Writes that are on their way ask nobody, so
  // owned memory stays registered, and unused, until the transport goes. Wrapped memory can't stay:
  // such a write breaks the queue pair that it comes through.
  void revoke(std::uint64_t region, RegisteredMemory registered);
  // Owned memory, as above.
  void quarantine(RegisteredMemory registered);
  // Regions that peers' landing notes are for.
  void add_gpu_memory(std::uint64_t region, GpuMemory& memory) { gpu_memory_[region] = &memory; }
  void remove_gpu_memory(std::uint64_t region) { gpu_memory_.erase(region); }
  // From a peer. Not ok: what it has put is not where it belongs.
  Status on_service(Rank peer, std::uint32_t immediate, const Record& record);

 private:
  explicit Engine(const TransportContext& context);
  Status start();
  Status open_device(const DeviceAddress& chosen);
  Status start_manager(const std::string& ip);
  Result<LocalPort> local_port(const DeviceAddress& chosen);
  // Whether to look for events in this turn.
  bool is_look_due();
  std::size_t take_completions();
  std::size_t poll(LaneKind kind);
  void take_events();
  // What has to be looked after by time.
  void tend(TimePoint now);
  void take_device_events();
  Inbound* inbound(Rank peer, LaneKind kind) const;
  bool goes_by_manager(const Address& peer) const;
  template <typename Function>
  void for_each_lane(Function&& function) {
    for (const Connection& connection : connections_) {
      for (const auto& lane : connection.lanes) {
        if (lane) function(*lane);
      }
    }
  }
  Connector::OnRequest request_handler();
  void on_request(std::unique_ptr<Session> session, std::span<const std::byte> bytes,
                  std::uint8_t reads);
  Result<Request> read_request(std::span<const std::byte> bytes) const;
  void watch_peers();
  Status land(Rank peer, const Record& record);

  TransportContext context_;
  Address address_;
  std::unique_ptr<CmConnector> cm_;     // null: without
  std::unique_ptr<Device> own_device_;  // null: librdmacm's
  ibv_context* device_ = nullptr;
  std::unique_ptr<MailConnector> mail_;
  std::unique_ptr<ProtectionDomain> domain_;
  std::unique_ptr<CompletionChannel> channel_;
  std::unique_ptr<CompletionQueue> completions_[kLaneKinds];
  std::size_t longest_message_ = 0;
  std::uint32_t queue_depth_;
  std::uint8_t reads_ = 1;
  std::unordered_map<std::uint32_t, Endpoint*> endpoints_;  // by queue pair number
  std::vector<RegisteredMemory> quarantine_;
  std::unordered_map<std::uint64_t, GpuMemory*> gpu_memory_;  // by number of the region
  std::vector<std::unique_ptr<Inbound>> inbound_;
  std::vector<Connection> connections_;  // by rank
  std::uint64_t next_region_ = 1;
  std::uint64_t seen_peers_ = 0;
  bool is_in_use_ = false;
  bool has_reported_device_ = false;
  int restless_ = 0;
  bool has_gone_peers_ = false;
  TimePoint next_probe_{};
  bool looks_for_events_ = false;
  std::uint32_t turns_ = 0;
  TimePoint next_look_{};
};

}  // namespace dunlin::transport::verbs
