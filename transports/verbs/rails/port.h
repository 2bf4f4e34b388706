// Port: one port of an RDMA device that this process uses. It holds the device, a protection
// domain, the completion queues, and the connection manager at the port's IP address, and
// dispatches completions.
//
// The engine has one port or, with rails, several. Owner thread only.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transports/transport.h"
#include "transports/verbs/connect/cm_connector.h"
#include "transports/verbs/connect/endpoint.h"
#include "transports/verbs/connect/mail_connector.h"
#include "transports/verbs/connect/wire.h"
#include "transports/verbs/constants.h"
#include "transports/verbs/device/device.h"
#include "transports/verbs/device/handle.h"

namespace dunlin::transport::verbs {

class Port {
 public:
  Port() = default;
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // `index`: the port's index in this process. `queue_pairs`: for each kind of lane, the number of
  // queue pairs per peer and direction. A kind with 0 gets no completion queue. Completion queues
  // grow with the queue pairs that there are. If the device cannot resize them, they get room for
  // the queue pairs of all peers, or for DUNLIN_VERBS_MAX_CONNECTIONS if that is less.
  Status open(const TransportContext& context, const DeviceAddress& chosen, std::size_t index,
              const std::uint32_t (&queue_pairs)[kLaneKinds], Connector::OnRequest on_request);

  std::size_t index() const { return index_; }
  const std::string& name() const { return name_; }  // "mlx5_0 port 1"
  ibv_context* device() const { return device_; }
  const ibv_device_attr& limits() const { return limits_; }
  const ProtectionDomain& domain() const { return *domain_; }
  CmConnector* manager() const { return cm_.get(); }  // null if connections do not use it
  const LocalPort& local() const { return local_; }
  // Reads the port's addresses again, which may change while it is down. If that fails, they stay.
  void refresh();
  PortAddress address() const;
  std::size_t longest_message() const { return local_.longest_message; }
  // How many reads and atomics a queue pair may have outstanding, in either direction.
  std::uint8_t reads() const { return reads_; }

  // Makes the session's RC queue pair. Its completions are dispatched to the endpoint. The device
  // may grant less inline data than `room` asks for.
  Status make_queue_pair(Session& session, LaneKind kind, ibv_qp_cap room, Endpoint& endpoint);
  // Afterwards the endpoint gets no more completions. Call it before the session is destroyed.
  // `room` is as in make_queue_pair().
  void detach(Session& session, LaneKind kind, const ibv_qp_cap& room);

  // Dispatches completions of this kind of lane. Returns how many.
  [[gnu::hot]] std::size_t poll(LaneKind kind) {
    ibv_wc completions[kPollBatch];
    const int count = ibv_poll_cq(completions_[index_of(kind)]->handle(), kPollBatch, completions);
    for (int i = 0; i < count; ++i) {
      if (Endpoint* const endpoint = endpoint_of(completions[i].qp_num))
        endpoint->on_completion(completions[i]);
    }
    return static_cast<std::size_t>(std::max(count, 0));
  }
  // Asks for announcements of completions. Returns false if that fails.
  bool arm();
  void disarm() { channel_->drain(); }
  void append_wait_fds(std::vector<int>& fds) const;

  // Destroys the connection manager and drains the channel. The port must not be used afterwards.
  void close();

 private:
  Status open_device(const TransportContext& context, const DeviceAddress& chosen,
                     Connector::OnRequest on_request);
  Status start_manager(const TransportContext& context, const std::string& ip,
                       Connector::OnRequest on_request);
  // Returns null for a queue pair that was detached. The last result is remembered, because
  // completions of one queue pair mostly follow one another.
  Endpoint* endpoint_of(std::uint32_t queue_pair) {
    if (last_.second != nullptr && last_.first == queue_pair) return last_.second;
    const auto found = endpoints_.find(queue_pair);
    if (found == endpoints_.end()) return nullptr;
    last_ = *found;
    return last_.second;
  }

  std::size_t index_ = 0;
  std::string name_;
  std::string ip_;                      // where the connection manager listens
  std::unique_ptr<CmConnector> cm_;     // null if it is not used
  std::unique_ptr<Device> own_device_;  // null if device_ is librdmacm's
  ibv_context* device_ = nullptr;
  ibv_device_attr limits_{};
  LocalPort local_;
  std::unique_ptr<ProtectionDomain> domain_;
  std::unique_ptr<CompletionChannel> channel_;
  std::unique_ptr<CompletionQueue> completions_[kLaneKinds];
  bool prefers_manager_ = false;
  std::size_t inline_size_ = 0;  // place in kInlineSizes of the first that the device grants
  std::uint8_t reads_ = 1;
  std::unordered_map<std::uint32_t, Endpoint*> endpoints_;  // by queue pair number
  std::pair<std::uint32_t, Endpoint*> last_;                // the last one found there, or null
};

// The scope of a device's atomics; nullopt if it has none.
std::optional<AtomicScope> atomics_of(const ibv_device_attr& limits);

}  // namespace dunlin::transport::verbs
