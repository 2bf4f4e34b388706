// Connection: everything this process shares with one peer over UCX: per lane an endpoint and an
// inbox, and the service messages between the two transports.
//
// It is made when this process connects or when the peer's first message comes, whichever is first,
// and lasts as long as the transport; links come and go on top of it. Each path (data, control)
// ends by itself: at the peer's good-bye, when UCX reports its endpoint broken, when the peer is
// known to be dead, or by force at close. What ended stays ended.
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

  std::unique_ptr<Endpoint> endpoint;  // null: not connected yet, or over
  Inbox inbox;
  std::uint64_t sent = 0;                            // messages of the lane so far
  UcxLane* lane = nullptr;                           // of the link, while there is one
  std::optional<ucs_status_t> error;                 // UCX's report
  std::chrono::steady_clock::time_point verdict_at;  // after an error
  bool said_goodbye = false;                         // the peer
  int flushes = 0;                                   // that UCX has not finished
  bool heard_farewell = false;                       // the peer has answered our good-bye
  Status failure;                                    // not ok: over, and why
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
  // Of the peer's notification board.
  std::uint64_t peer_cells() const { return peer_cells_; }
  std::uint64_t peer_token() const { return peer_token_; }

  // Makes the endpoints and sends what has waited for them.
  Status open(const Address& address);
  // The peer's address, from its greeting: to be opened outside UCX's callbacks.
  void offer(Address address) { offered_ = std::move(address); }
  // Acts on what UCX's callbacks left: opens, passes verdicts, closes. True while a verdict is due.
  bool settle();
  // Closes the path's endpoint, if that is due, outside UCX's callbacks.
  void settle_soon(const Path& path);
  // For a path that UCX reported broken; the verdict follows.
  void note_error(Path& path, ucs_status_t status);
  // Ends a path: its operations end with `why`. Its endpoint is closed by force, but never while it
  // is being flushed and healthy: over TCP UCX aborts the process when the answer to a flush comes
  // after that.
  void sever(LaneKind kind, const Status& why);
  void sever_all(const Status& why);
  // Whatever is going on; nothing may be progressed afterwards.
  void close_endpoints();
  // Tells the peer that the end of our path `ending` is no accident.
  void say_goodbye(LaneKind ending, LaneKind over);

  // Sends over a path, now or once there is one; dropped when that is over.
  void send_over(LaneKind over, const ServiceHeader& header, Bytes payload);
  void send(const ServiceHeader& header, Bytes payload = {}) {
    send_over(LaneKind::kControl, header, std::move(payload));
  }
  // The peer has not yet taken note of every good-bye.
  bool is_parting() const;
  // Answers the peer's good-bye over the path that it ends.
  void answer_goodbye(LaneKind ending);

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
  // Messages wait here for the endpoint; then here for UCX; then they are used again.
  std::list<Outgoing> waiting_;
  std::list<Outgoing> sending_;
  std::list<Outgoing> idle_;
  Imports imports_;
};

}  // namespace dunlin::transport::ucx
