// Inbound: the receiving end of a peer's lane: the queue pair that the peer's Outbound is connected
// to, and the mailbox in which its notifications land.
//
// The peer may have as many notifications on their way as the mailbox has slots, each of which has
// a receive work request posted. How many were taken out goes back as the immediate of an empty
// WRITE_WITH_IMM. What carries stripes (rails.h) ends here, too, but brings no notifications.
//
// Lasts as long as the peer; when the peer has lost its connection, it makes another one to the
// same mailbox. Owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/rank.h"
#include "transports/verbs/endpoint.h"
#include "transports/verbs/handle.h"
#include "transports/verbs/session.h"
#include "transports/verbs/wire.h"

namespace dunlin::transport::verbs {

class Engine;
class Port;

class Inbound final : public Endpoint {
 public:
  static Result<std::unique_ptr<Inbound>> create(Engine& engine, Port& port, Rank peer,
                                                 LaneKind kind, std::uint8_t rail);
  ~Inbound() override;

  Rank peer() const { return peer_; }
  LaneKind kind() const { return kind_; }
  std::uint8_t rail() const { return rail_; }
  const Port& port() const { return port_; }

  // Accepts the connection that the session stands for, in place of any before; the peer will have
  // up to `reads` reads and atomics on the way.
  Status accept(std::unique_ptr<Session> session, const Request& request, std::uint8_t reads);

  void on_event(const Event& event) override;
  void on_completion(const ibv_wc& completion) override;

 private:
  Inbound(Engine& engine, Port& port, Rank peer, LaneKind kind, std::uint8_t rail);
  ibv_qp_cap room() const;
  Status make_queue_pair();
  Status send_answer(std::uint8_t reads);
  Status post_receives(std::uint32_t count);
  void take(const ibv_wc& completion);
  void take_short(const ShortForm& form, std::uint32_t bytes);
  void take_record(std::uint32_t immediate, const Record& record, std::size_t size);
  void take_service(std::uint32_t immediate, const Record& record);
  void publish(const Notification& notification);
  void return_credits();
  // Takes what the connection has brought, and ends it.
  void drop_connection();
  // Lets the peer know that the connection is of no use any more.
  void give_up();

  Engine& engine_;
  Port& port_;
  const Rank peer_;
  const LaneKind kind_;
  const std::uint8_t rail_;  // 0: the lane itself
  const std::uint32_t slots_;
  std::unique_ptr<Session> session_;
  // The mailbox, and behind it the number of the last landing note that was carried out, which the
  // peer's flushes read.
  std::shared_ptr<MemoryRegion> memory_;
  std::unique_ptr<MemoryKey> key_;
  std::uint64_t taken_ = 0;               // records
  std::uint64_t told_ = 0;                // of these, as the peer knows
  std::vector<std::uint64_t> sequences_;  // by cell, of the last notification
  Status damage_;  // bytes of the peer can't be brought where they belong: nothing more is taken
  // Of the present connection.
  bool is_broken_ = false;
  bool is_returning_ = false;     // a credit is on the wire
  std::uint32_t posted_ = 0;      // receive work requests
  std::uint32_t to_replace_ = 0;  // of these, still to be posted again
};

}  // namespace dunlin::transport::verbs
