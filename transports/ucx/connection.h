// Connection: everything that this process shares with one peer over UCX: an endpoint and an inbox
// per lane, and the service messages between the two transports.
//
// It is made when this process connects, or when the peer's first message arrives, whichever
// happens first. It lasts as long as the transport; links come and go on top of it. Each path
// (data, control) ends independently of the other: when the peer closes it, when UCX reports its
// endpoint broken, when the peer is known to be dead, or by force in close(). A path that has ended
// does not begin again.
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "transports/imports.h"
#include "transports/ucx/handle.h"
#include "transports/ucx/inbox.h"
#include "transports/ucx/wire.h"

namespace dunlin::transport::ucx {

class Connection;
class UcxLane;

struct Path {
  Path(Engine& engine, Connection& its, Rank peer, LaneKind kind)
      : inbox(engine, peer, kind), connection(its) {}

  std::unique_ptr<Endpoint> endpoint;  // null before it is connected, and after it has ended
  Inbox inbox;
  std::uint64_t sent = 0;                            // messages of the lane so far
  UcxLane* lane = nullptr;                           // the link's lane, while there is one
  std::optional<ucs_status_t> error;                 // as reported by UCX
  std::chrono::steady_clock::time_point verdict_at;  // after an error: when to decide what it means
  bool has_peer_closed = false;                      // the peer has announced it
  int flushes = 0;                                   // that UCX has not finished
  bool is_close_acknowledged = false;                // the peer knows that this end closes
  Status failure;                                    // why the path has ended; ok if it has not
  Connection& connection;
};

class Connection {
 public:
  Connection(Engine& engine, Rank peer);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Rank peer() const { return peer_; }
  Path& path(LaneKind kind) { return kind == LaneKind::kData ? data_ : control_; }
  const Path& path(LaneKind kind) const { return kind == LaneKind::kData ? data_ : control_; }
  bool is_open() const { return is_open_; }
  bool uses_rma() const;
  // The number of cells of the peer's notification board.
  std::uint64_t peer_cells() const { return peer_cells_; }
  std::uint64_t peer_token() const { return peer_token_; }

  // Makes the endpoints, and sends the messages that have waited for them.
  Status open(const Address& address);
  // Notes the peer's address from its greeting. settle() opens it, outside UCX's callbacks.
  void offer(Address address) { offered_ = std::move(address); }
  // Does what UCX's callbacks must leave undone: opens endpoints, decides about errors, closes
  // endpoints. Returns true while a decision is pending.
  bool settle();
  // Makes settle() close the path's endpoint soon, if it is to be closed.
  void settle_soon(const Path& path);
  // Notes that UCX reported the path broken. settle() decides what that means.
  void note_error(Path& path, ucs_status_t status);
  // Ends a path; its operations fail with `why`. The endpoint is closed by force, but not while it
  // is healthy and being flushed: over TCP, UCX aborts the process if the answer to a flush arrives
  // afterwards.
  void sever(LaneKind kind, const Status& why);
  void sever_all(const Status& why);
  // Ends both paths and refuses all that arrives from now on. kBusy while UCX may still write bytes
  // of the peer: an endpoint is open, or bytes are being fetched.
  Status revoke(const Status& why);
  // Closes the endpoints in any state. Do not progress anything afterwards.
  void close_endpoints();
  // Tells the peer over the path `over` that this end closes the path `ending`, so that the peer
  // does not take it for a failure.
  void announce_close(LaneKind ending, LaneKind over);

  // Sends over a path, as soon as it has an endpoint. The message is dropped if the path has ended.
  void send_over(LaneKind over, const ServiceHeader& header, Bytes payload);
  void send(const ServiceHeader& header, Bytes payload = {}) {
    send_over(LaneKind::kControl, header, std::move(payload));
  }
  // Whether a closing that was announced to the peer is still unacknowledged.
  bool awaits_close_acknowledgment() const;
  // Tells the peer, over the path that it closes, that this end knows of it.
  void acknowledge_close(LaneKind ending);

  Imports& imports() { return imports_; }

 private:
  struct Outgoing {
    Connection* connection;
    LaneKind over;
    ServiceHeader header;
    Bytes payload;
    std::list<Outgoing>::iterator place;
  };

  void transmit(Outgoing& message);
  void finish(Outgoing& message);
  void pass_verdict(LaneKind kind);
  bool needs_closing(LaneKind kind) const;
  static void on_error(void* path, ucp_ep_h endpoint, ucs_status_t status);
  static void on_sent(void* request, ucs_status_t status, void* message);

  Engine& engine_;
  Rank peer_;
  Path data_;
  Path control_;
  bool is_open_ = false;
  std::uint64_t peer_cells_ = 0;
  std::uint64_t peer_token_ = 0;
  std::optional<Address> offered_;
  std::list<Outgoing> waiting_;  // messages that wait for the endpoint
  std::list<Outgoing> sending_;  // messages that UCX holds
  std::list<Outgoing> idle_;     // entries to reuse
  Imports imports_;
};

}  // namespace dunlin::transport::ucx
