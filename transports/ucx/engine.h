// Engine: what the lanes, links and regions of one ucx transport share: the UCP context with its
// two workers, the table of regions, and the connections. It dispatches arriving messages.
//
// Owned by the transport. Owner thread only. UCX's callbacks run inside progress(). They must not
// make or close endpoints, and leave that to the end of progress().
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
  // Makes the workers, which listen on the network. Before it, only regions() and ucp() are of use,
  // and progress() does nothing.
  Status open();
  // Tells the peers that this process closes its end.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const TransportContext& context() const { return context_; }
  const Context& ucp() const { return *ucp_; }
  Worker& worker(LaneKind kind) const { return *workers_[index_of(kind)]; }
  RegionTable& regions() { return regions_; }
  bool is_open() const { return is_open_; }
  const Address& address() const { return address_; }
  // Whether this end uses RMA for large puts. A connection does if both ends do.
  bool uses_rma() const { return uses_rma_; }

  // Returns the connection to the peer. Opens it with a greeting if it is not open.
  Result<Connection*> connect(Rank peer, const Address& address);

  // Whether this process has connected to any peer, or has received a message.
  bool has_connections() const { return has_connections_; }

  std::size_t progress();
  // See Transport::revoke().
  Status revoke(Rank peer);
  bool arm();
  void want_settling() { wants_settling_ = true; }

  // Progresses until `is_over()` returns true, but for at most `grace` of real time.
  template <typename IsOver>
  void drain(IsOver&& is_over, Duration grace) {
    poll_until(is_over, grace, [this] { return progress(); });
  }
  // Keeps operations that UCX may still call back about.
  void keep(std::unique_ptr<Operation[]> ring) { kept_.push_back(std::move(ring)); }

  // Makes a service message to that peer, without region and code. kHello and kRevoked do not
  // concern a lane.
  ServiceHeader service(const Connection& to, ServiceKind kind, LaneKind lane = LaneKind::kData,
                        std::uint64_t order = 0) const;
  void answer_flush(Rank peer, LaneKind lane, std::uint64_t order);
  void answer_read(Rank peer, LaneKind lane, const MessageHeader& message);
  void reject(Rank peer, LaneKind lane, const MessageHeader& message, Code code);
  void announce_revoked(std::uint64_t region);

 private:
  // `began`: when the end of this engine did.
  void drain_until_quiet(TimePoint began);

  // The argument of a worker's handlers.
  struct Port {
    Engine* engine;
    LaneKind lane;
  };

  explicit Engine(const TransportContext& context);
  Connection& connection(Rank peer);
  void settle();
  void check_peers();
  // Whether a message is from a peer of this job and for this process. Logs a warning if not.
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
  bool is_open_ = false;
  bool has_connections_ = false;
  TimePoint connected_at_{};  // the last one
  bool wants_settling_ = false;
  std::uint64_t seen_peers_ = 0;
};

}  // namespace dunlin::transport::ucx
