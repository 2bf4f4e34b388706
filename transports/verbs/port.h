// Port: one port of an RDMA device as this process uses it: the device, its protection domain, its
// completion queues, and the connection manager at its IP address. Dispatches completions.
//
// The engine has one or, with rails, several. Owner thread only.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transports/transport.h"
#include "transports/verbs/cm_connector.h"
#include "transports/verbs/constants.h"
#include "transports/verbs/device.h"
#include "transports/verbs/endpoint.h"
#include "transports/verbs/handle.h"
#include "transports/verbs/mail_connector.h"
#include "transports/verbs/wire.h"

namespace dunlin::transport::verbs {

class Port {
 public:
  Port() = default;
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // `index`: of the process's ports. `queue_pairs`: per peer and direction, of which a lane is one,
  // for which completion queues get room; a kind of lane without any gets none.
  Status open(const TransportContext& context, const DeviceAddress& chosen, std::size_t index,
              const std::uint32_t (&queue_pairs)[kLaneKinds], Connector::OnRequest on_request);

  std::size_t index() const { return index_; }
  const std::string& name() const { return name_; }  // "mlx5_0 port 1"
  ibv_context* device() const { return device_; }
  const ibv_device_attr& limits() const { return limits_; }
  const ProtectionDomain& domain() const { return *domain_; }
  CmConnector* manager() const { return cm_.get(); }  // null: without
  const LocalPort& local() const { return local_; }
  PortAddress address() const;
  std::size_t longest_message() const { return longest_message_; }
  // Reads and atomics that a queue pair may have on the way, as their source and as their target.
  std::uint8_t reads() const { return reads_; }

  // Makes the session's RC queue pair, of which the endpoint gets the completions. Less inline
  // data than `room` asks for may be granted.
  Status make_queue_pair(Session& session, LaneKind kind, ibv_qp_cap room, Endpoint& endpoint);
  // Before the session goes: the endpoint gets no more completions. `room` as above.
  void detach(Session& session, LaneKind kind, const ibv_qp_cap& room);

  // Takes completions of that kind of lane; returns how many.
  [[gnu::hot]] std::size_t poll(LaneKind kind) {
    ibv_wc completions[kPollBatch];
    const int count = ibv_poll_cq(completions_[index_of(kind)]->handle(), kPollBatch, completions);
    for (int i = 0; i < count; ++i) {
      if (Endpoint* const endpoint = endpoint_of(completions[i].qp_num))
        endpoint->on_completion(completions[i]);
    }
    return static_cast<std::size_t>(std::max(count, 0));
  }
  // Completions are announced from here on; false: they can't be.
  bool arm();
  void disarm() { channel_->drain(); }
  void append_wait_fds(std::vector<int>& fds) const;

  // Ends the manager and what the channel has announced; nobody may use the port any more.
  void close();

 private:
  Status open_device(const TransportContext& context, const DeviceAddress& chosen,
                     Connector::OnRequest on_request);
  Status start_manager(const TransportContext& context, const std::string& ip,
                       Connector::OnRequest on_request);
  Status look_at_port(const DeviceAddress& chosen);
  // Null for a queue pair that was detached. Completions of one mostly come one after the other.
  Endpoint* endpoint_of(std::uint32_t queue_pair) {
    if (last_.second != nullptr && last_.first == queue_pair) return last_.second;
    const auto found = endpoints_.find(queue_pair);
    if (found == endpoints_.end()) return nullptr;
    last_ = *found;
    return last_.second;
  }

  std::size_t index_ = 0;
  std::string name_;
  std::string ip_;                      // where the manager listens
  std::unique_ptr<CmConnector> cm_;     // null: without
  std::unique_ptr<Device> own_device_;  // null: librdmacm's
  ibv_context* device_ = nullptr;
  ibv_device_attr limits_{};
  LocalPort local_;
  std::unique_ptr<ProtectionDomain> domain_;
  std::unique_ptr<CompletionChannel> channel_;
  std::unique_ptr<CompletionQueue> completions_[kLaneKinds];
  std::size_t longest_message_ = 0;
  std::uint8_t reads_ = 1;
  std::unordered_map<std::uint32_t, Endpoint*> endpoints_;  // by queue pair number
  std::pair<std::uint32_t, Endpoint*> last_;                // found there; null: none
};

// Of a device; nothing: it has none.
std::optional<AtomicScope> atomics_of(const ibv_device_attr& limits);

}  // namespace dunlin::transport::verbs
