// Engine: what the lanes, links and regions of one ucx transport share: the UCP context with its
// two workers, the table of regions, and the connections. Dispatches what arrives.
//
// Owned by the transport. Owner thread only; UCX's callbacks run inside progress() and, where they
// would have to make or close endpoints, leave that for the end of progress().
#pragma once

#include <memory>
#include <vector>

#include "transports/transport.h"
#include "transports/ucx/connection.h"
#include "transports/ucx/handle.h"
#include "transports/ucx/lane.h"
#include "transports/ucx/region.h"
#include "transports/ucx/wire.h"

namespace dunlin::transport::ucx {

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(const TransportContext& context);
  // Says good-bye to the peers.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const TransportContext& context() const { return context_; }
  const Context& ucp() const { return *ucp_; }
  Worker& worker(LaneKind kind) const { return *workers_[index_of(kind)]; }
  RegionTable& regions() { return regions_; }
  const Address& address() const { return address_; }
  // Large puts go by RMA where both ends have it.
  bool uses_rma() const { return uses_rma_; }

  // The connection to the peer, opened if it isn't, with a greeting.
  Result<Connection*> connect(Rank peer, const Address& address);

  // Whether any peer was connected to, or has sent something.
  bool has_connections() const { return has_connections_; }

  std::size_t progress();
  bool arm();
  void want_settling() { wants_settling_ = true; }

  // Progresses until `is_over()` or for `grace` of real time.
  template <typename IsOver>
  void drain(IsOver&& is_over, Duration grace) {
    poll_until(is_over, grace, [this] { return progress(); });
  }
  // Holds operations that UCX may still call back about.
  void keep(std::unique_ptr<Operation[]> ring) { kept_.push_back(std::move(ring)); }

  // A service message to that peer, filled in but for region and code. Hello and revoked concern no
  // lane.
  ServiceHeader service(const Connection& to, ServiceKind kind, LaneKind lane = LaneKind::kData,
                        std::uint64_t order = 0) const;
  void answer_flush(Rank peer, LaneKind lane, std::uint64_t order);
  void answer_read(Rank peer, LaneKind lane, const MessageHeader& message);
  void reject(Rank peer, LaneKind lane, const MessageHeader& message, Code code);
  void announce_revoked(std::uint64_t region);

 private:
  void drain_until_quiet();

  // What a worker's handlers are called with.
  struct Port {
    Engine* engine;
    LaneKind lane;
  };

  explicit Engine(const TransportContext& context);
  Status start();
  Connection& connection(Rank peer);
  void settle();
  void watch_peers();
  // Whether a message is from a peer of this job and for this process; logged if not.
  bool is_genuine(std::uint64_t token, std::uint32_t source) const;
  void on_service(const ServiceHeader& header, const void* payload, std::size_t size);
  static ucs_status_t on_lane_message(void* port, const void* header, std::size_t header_size,
                                      void* data, std::size_t size,
                                      const ucp_am_recv_param_t* param);
  static ucs_status_t on_service_message(void* port, const void* header, std::size_t header_size,
                                         void* data, std::size_t size,
                                         const ucp_am_recv_param_t* param);

  TransportContext context_;
  bool uses_rma_;
  std::unique_ptr<Context> ucp_;
  std::vector<std::unique_ptr<Operation[]>> kept_;
  std::vector<std::unique_ptr<Connection>> connections_;  // by rank; outlive the workers
  RegionTable regions_;
  std::unique_ptr<Worker> workers_[kLaneKinds];
  Port ports_[kLaneKinds];
  Address address_;
  bool has_connections_ = false;
  bool wants_settling_ = false;
  std::uint64_t seen_peers_ = 0;
};

}  // namespace dunlin::transport::ucx
