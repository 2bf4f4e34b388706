// Inbox: the receiving end of one lane of a peer. It checks arriving messages against the table of
// regions, writes their bytes, publishes their notifications, and answers.
//
// It lasts as long as the transport; the peer's connections come and go. A message counts as
// carried out when its bytes are in the region and its notification is published. The inbox
// remembers the number of the last such message, and tells it to the peer at the beginning of each
// connection, so that the peer goes on behind it. Owner thread only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "transports/tcp/connection.h"
#include "transports/tcp/listener.h"
#include "transports/tcp/wire.h"
#include "transports/transport.h"

namespace dunlin::transport::tcp {

class Engine;

class Inbox final : private Connection::Receiver {
 public:
  Inbox(Engine& engine, Rank source, LaneKind lane)
      : engine_(engine), source_(source), lane_(lane) {}
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Goes on over this connection, which the peer's lane has made, in place of any former one.
  // Refuses one that the lane has left since, or one of a lane that the peer has replaced.
  Status adopt(Admitted admitted);
  // The same for a connection that the peer's lane joins; `header` is that of its kJoin.
  Status join(std::shared_ptr<Connection> connection, const MessageHeader& header);
  bool is_connected() const { return connection_ != nullptr; }
  const std::shared_ptr<Connection>& connection() const { return connection_; }
  // Ends the connection. The peer may make another one.
  void end();

  // The region is no longer registered: nothing is written to it from now on, and the peer is told.
  void revoke(std::uint64_t region);
  // Tells the peer that this process closes its end for good.
  void announce_closing();

 private:
  struct Arrival {
    MessageHeader header;
    std::array<std::byte, kInlineBytes> inline_data;
    Code outcome;
  };
  struct Rejection {
    std::uint64_t order;
    std::uint64_t region;
    Code code;
  };
  struct PendingRead {
    std::uint64_t order;
    std::uint64_t region;
    std::uint64_t offset;
    std::uint64_t left;
  };

  Status on_messages(std::span<const std::byte> frame) override;
  Status on_payload() override;
  bool append_answers() override;
  void on_lost(const Status& why) override;
  Status check(const Origin& origin) const;
  void begin(const Origin& origin, std::shared_ptr<Connection> connection);
  void forget_arrivals();
  Status accept(const Message& message);
  Status accept_read(const MessageHeader& header);
  void settle(const MessageHeader& header, const Notification& notification, Code outcome);
  void count(const MessageHeader& header);
  void reject(const MessageHeader& header, Code code);
  // Sends the answers that are due.
  void answer();
  bool append(const AnswerHeader& header, const std::byte* bytes = nullptr);
  bool append_reads();

  Engine& engine_;
  const Rank source_;
  const LaneKind lane_;
  std::shared_ptr<Connection> connection_;  // null: none
  Origin origin_;                           // of that connection, or of the last one
  std::uint64_t carried_out_ = 0;           // number of the last message that was carried out
  std::uint64_t unacknowledged_ = 0;
  std::uint64_t ack_interval_ = 1;
  bool is_begin_due_ = false;
  bool is_ack_due_ = false;
  bool is_closing_due_ = false;
  std::optional<Arrival> arrival_;      // the message whose payload is arriving
  std::vector<Rejection> rejections_;   // which the peer may not know; oldest first
  std::size_t rejections_sent_ = 0;     // of those, over this connection
  std::vector<std::uint64_t> revoked_;  // to be sent
  std::vector<PendingRead> reads_;      // to be answered, from next_read_ on
  std::size_t next_read_ = 0;
};

}  // namespace dunlin::transport::tcp
