// Inbound: the receiving end of a peer's lane. It holds the queue pair that the peer's Outbound is
// connected to, and the mailbox that the peer's notifications land in.
//
// The mailbox has a fixed number of slots, and a receive work request is posted for each. The peer
// may have that many notifications in progress. Credits, the number of notifications that were
// taken out so far, go back as the immediate of an empty WRITE_WITH_IMM. A peer's rail
// (rails/rails.h) has an Inbound, too, but carries no notifications.
//
// Lasts until the peer is gone. A peer that has lost its connection, or has given it up, makes a
// new one, to a new mailbox; without a connection there is neither a queue pair nor a mailbox. If
// peers have more connections to this process than there should be, those that have brought nothing
// for the longest time are asked to be given up. Owner thread only.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/rank.h"
#include "transports/verbs/connect/connection_share.h"
#include "transports/verbs/connect/endpoint.h"
#include "transports/verbs/connect/session.h"
#include "transports/verbs/connect/wire.h"
#include "transports/verbs/device/handle.h"
#include "transports/verbs/path/cell_numbers.h"
#include "transports/verbs/path/completion_watch.h"

namespace dunlin::transport::verbs {

class Engine;
class Port;

class Inbound final : public Endpoint {
 public:
  Inbound(Engine& engine, Port& port, Rank peer, LaneKind kind, std::uint8_t rail);
  ~Inbound() override;

  Rank peer() const { return peer_; }
  const Port& port() const { return port_; }
  bool is_connected() const { return session_ != nullptr && !is_broken_; }

  // Accepts the session's connection, which replaces an earlier one. The peer may have up to
  // `reads` reads and atomics outstanding.
  Status accept(std::unique_ptr<Session> session, const Request& request, std::uint8_t reads);

  void on_event(const Event& event) override;
  void on_completion(const ibv_wc& completion) override;

  // For ConnectionShare. The peer decides whether to give the connection up.
  bool begin_to_leave();
  bool is_leaving() const { return is_leaving_; }
  std::uint64_t last_use() const { return last_use_; }
  // Gives up a connection whose queue pair has hung. Call it at every probe.
  void look_for_hang(TimePoint now);
  // Ends a connection that is of no use any more, if there is one. Not to be called while a
  // completion is dispatched.
  void drop_broken() {
    if (session_ && is_broken_) drop_connection();
  }

 private:
  ibv_qp_cap room() const;
  Status make_mailbox();
  Status make_queue_pair();
  Status send_answer(std::uint8_t reads);
  Status post_receives(std::uint32_t count);
  void take(const ibv_wc& completion);
  void take_short(const ShortForm& form, std::uint32_t bytes);
  void take_record(std::uint32_t immediate, const Record& record, std::size_t size);
  void take_service(std::uint32_t immediate, const Record& record);
  // Publishes what the number's cell was notified of. The cell has the number from now on.
  void publish(std::uint16_t number, const Notification& notification);
  void return_credits();
  // Takes what has arrived over the connection, ends it, and frees the mailbox.
  void drop_connection();
  // Tells the peer that this end no longer uses the connection.
  void give_up();

  Engine& engine_;
  Port& port_;
  const Rank peer_;
  const LaneKind kind_;
  const std::uint8_t rail_;  // 0 for the lane itself
  const std::uint32_t slots_;
  std::unique_ptr<Session> session_;
  // The mailbox, and behind it a word that the peer's flushes read: the number of the last landing
  // note that was carried out.
  std::shared_ptr<MemoryRegion> memory_;
  std::unique_ptr<MemoryKey> key_;
  std::uint64_t taken_ = 0;  // notifications
  std::uint64_t told_ = 0;   // of these, returned as credits
  TakenCells cells_;
  ConnectionShare<Inbound>& share_;
  std::uint64_t last_use_ = 0;
  // Not ok once bytes of the peer could not be made visible to a GPU. Nothing more is taken then.
  Status damage_;
  // These refer to the present connection.
  bool is_broken_ = false;
  bool is_leaving_ = false;       // the peer is to give it up
  bool has_asked_ = false;        // the peer was told so
  bool has_arrivals_ = false;     // so that the peer is connected, too
  bool is_returning_ = false;     // a return of credits is on the wire
  CompletionWatch watch_;         // over that
  std::uint32_t posted_ = 0;      // receive work requests
  std::uint32_t to_replace_ = 0;  // completed receive work requests to be posted again
};

}  // namespace dunlin::transport::verbs
