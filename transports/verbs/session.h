// Session, Connector: how two queue pairs get to know each other.
//
// There are two ways: librdmacm (cm_connector.h), which finds its way by IP addresses, and the
// bootstrap's mail (mail_connector.h), which needs nothing but the port. A session is one end of
// one connection, from the first attempt to the end; a connector makes the sessions of this process
// and tells them what happens. Owner thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "runtime/config.h"
#include "runtime/rank.h"
#include "transports/verbs/endpoint.h"
#include "transports/verbs/handle.h"
#include "transports/verbs/wire.h"

namespace dunlin::transport::verbs {

// How a queue pair's packets travel, and when they are sent again: RC devices do so up to `retries`
// times in a row (7 means for ever to rdma_rxe), then the queue pair is broken. By default that is
// half a second (some devices round up to 4 s in all): 1 % loss needs a second try now and then; a
// link that comes back within that time goes unnoticed, one that takes longer costs a new
// connection.
struct Delivery {
  explicit Delivery(const Config& config);
  // What close() gives pending operations to end by themselves: two timeouts at the least, for a
  // packet that was lost.
  Duration close_grace() const;

  int traffic_class;           // -1: the system's
  std::uint8_t service_level;  // where the connection manager doesn't choose
  std::uint8_t timeout;        // 4.096 us * 2^timeout without an acknowledgement
  std::uint8_t retries;
};

class Session {
 public:
  // Takes the queue pair with it, and lets the other end know.
  virtual ~Session() = default;
  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Who is told what happens; outlives the session.
  void attach(Endpoint& endpoint) { endpoint_ = &endpoint; }
  // In its initial state, ready for receive work requests: sets queue_pair_, unless it fails.
  virtual Status create_queue_pair(const ProtectionDomain& domain, ibv_qp_init_attr attributes) = 0;
  ibv_qp* queue_pair() const { return queue_pair_; }  // null: none yet
  // A receive work request without a buffer and with number 0: the bytes of a WRITE_WITH_IMM go
  // where the sender says.
  Status post_receive();

  // For who connects. kRouteFound follows, or kFailed or kRefused.
  virtual Status find_route() = 0;
  // Then, with a queue pair; kEstablished follows, or kFailed or kRefused. `reads`: reads and
  // atomics that this end will have on the way.
  virtual Status request(const Request& request, std::uint8_t reads) = 0;

  // For who is asked, with a queue pair. `reads`: those of the other end.
  virtual Status accept(const Answer& answer, std::uint8_t reads) = 0;
  // For good, or because it can't be had just now.
  enum class Refusal : std::uint8_t { kForGood, kForNow };
  virtual void refuse(Refusal refusal) = 0;

  // Lets the other end know that the connection is of no use any more.
  virtual void disconnect() = 0;

 protected:
  Endpoint* endpoint_ = nullptr;
  ibv_qp* queue_pair_ = nullptr;  // ends with the session, which sees to that
};

class Connector {
 public:
  // Somebody asks for a connection to our port of that index; `reads` as in Session::accept.
  using OnRequest = std::function<void(std::unique_ptr<Session> session, std::size_t port,
                                       std::span<const std::byte> request, std::uint8_t reads)>;

  virtual ~Connector() = default;
  // A session that will ask the peer, between the ports of that index at both ends.
  virtual Result<std::unique_ptr<Session>> open(Rank peer, const Address& address,
                                                std::size_t port) = 0;
  // Tells the sessions' endpoints what has happened, and OnRequest who asks. Never blocks.
  virtual void take_events() = 0;
  // Readable when something has happened.
  virtual int fd() const = 0;
};

}  // namespace dunlin::transport::verbs
