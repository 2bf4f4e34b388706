// Session and Connector: how two queue pairs are connected.
//
// There are two ways: librdmacm (cm_connector.h), which uses IP addresses, and messages through the
// bootstrap (mail_connector.h), which need nothing but an active port. A session is one end of one
// connection, from the first attempt to its end. A connector makes the sessions of this process and
// dispatches events to them. Owner thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "runtime/config.h"
#include "runtime/rank.h"
#include "transports/verbs/connect/endpoint.h"
#include "transports/verbs/connect/wire.h"
#include "transports/verbs/device/handle.h"

namespace dunlin::transport::verbs {

// How the packets of a queue pair travel, and when they are sent again.
//
// An RC device sends an unacknowledged packet again up to `retries` times, and then breaks the
// queue pair. By default that takes 3.8 s (kLongestPause), and more if the device rounds it up. A
// link that comes back within that time goes unnoticed; one that takes longer costs a new
// connection. To some devices (rdma_rxe), 7 retries mean forever.
struct Delivery {
  explicit Delivery(const Config& config);
  // How long close() waits for pending operations to complete: at least two timeouts, which is
  // enough for one lost packet.
  Duration close_grace() const;
  // How long a device tries to send a packet before it breaks the queue pair.
  Duration endurance() const;

  int traffic_class;           // -1: the system's default
  std::uint8_t service_level;  // unless the connection manager chooses one
  std::uint8_t timeout;        // a packet is sent again after 4.096 us * 2^timeout
  std::uint8_t retries;
};

// Delivery::endurance() of a queue pair that is connected, by what it says of itself. Nothing if
// the device may try for ever, or does not say.
std::optional<Duration> endurance_of(ibv_qp* queue_pair);

class Session {
 public:
  // Destroys the queue pair, and tells the other end.
  virtual ~Session() = default;
  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The endpoint gets the session's events. It must outlive the session.
  void attach(Endpoint& endpoint) { endpoint_ = &endpoint; }
  // Creates the queue pair in its initial state, in which receive work requests can be posted. Sets
  // queue_pair_ unless it fails.
  virtual Status create_queue_pair(const ProtectionDomain& domain, ibv_qp_init_attr attributes) = 0;
  ibv_qp* queue_pair() const { return queue_pair_; }  // null before create_queue_pair()
  // Posts a receive work request without a buffer and with number 0. The sender of a WRITE_WITH_IMM
  // says where its bytes go.
  Status post_receive();

  // The end that connects calls find_route() first. The event kRouteFound, kFailed or kRefused
  // follows.
  virtual Status find_route() = 0;
  // Then it creates a queue pair and calls request(). kEstablished, kFailed or kRefused follows.
  // `reads`: reads and atomics that this end may have outstanding.
  virtual Status request(const Request& request, std::uint8_t reads) = 0;

  // The end that is asked creates a queue pair and calls accept(), or calls refuse(). `reads`:
  // reads and atomics that the other end may have outstanding.
  virtual Status accept(const Answer& answer, std::uint8_t reads) = 0;
  // kForGood: do not ask again. kForNow: the connection cannot be accepted just now.
  enum class Refusal : std::uint8_t { kForGood, kForNow };
  virtual void refuse(Refusal refusal) = 0;

  // Tells the other end that this end no longer uses the connection.
  virtual void disconnect() = 0;

 protected:
  Endpoint* endpoint_ = nullptr;
  ibv_qp* queue_pair_ = nullptr;  // destroyed by the derived class
};

class Connector {
 public:
  // Called when a peer requests a connection to this process's port with index `port`. `reads` is
  // as in Session::accept().
  using OnRequest = std::function<void(std::unique_ptr<Session> session, std::size_t port,
                                       std::span<const std::byte> request, std::uint8_t reads)>;

  virtual ~Connector() = default;
  // Makes a session for a connection to the peer, between the ports with this index at both ends.
  virtual Result<std::unique_ptr<Session>> open(Rank peer, const Address& address,
                                                std::size_t port) = 0;
  // Dispatches pending events to the sessions' endpoints, and requests to OnRequest. Never blocks.
  virtual void take_events() = 0;
  // A descriptor that is readable while events are pending.
  virtual int fd() const = 0;
};

}  // namespace dunlin::transport::verbs
