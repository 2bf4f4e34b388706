// Connection: a TCP connection to a peer, from the end of its handshake on, and what uses it.
//
// It carries the messages of up to two lanes, one in each direction, and the answers to them. The
// lane that has made the connection sends over it from the beginning, and the peer's inbox takes
// its messages. The peer's own lane may join later: then the packets of each direction carry the
// acknowledgments of the other one, which saves the kernel a packet per small message. Only a lane
// of the higher rank joins, so there is no race to decide (TcpLane::may_join()).
//
// Its users share the ownership. The connection ends when none is left. Owner thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "transports/lane.h"
#include "transports/tcp/channel.h"

namespace dunlin::transport::tcp {

struct Answer;
struct Peer;

class Connection final : public std::enable_shared_from_this<Connection>, private SocketUser {
 public:
  // The sending end of a lane.
  class Sender {
   public:
    // An answer to one of its messages. What is not ok ends the connection.
    virtual Status on_answer(const Answer& answer) = 0;
    // Appends messages to the writer, as many as there is room for. Returns whether there is
    // anything to write.
    virtual bool append_messages() = 0;
    // All that was appended is in the socket.
    virtual void on_written() = 0;
    // The connection has ended, and the sender no longer belongs to it.
    virtual void on_lost(const Status& why) = 0;

   protected:
    ~Sender() = default;
  };
  // The receiving end of a lane of the peer. The functions correspond.
  class Receiver {
   public:
    virtual Status on_messages(std::span<const std::byte> frame) = 0;
    // The payload that it has told the reader to expect has arrived.
    virtual Status on_payload() = 0;
    virtual bool append_answers() = 0;
    virtual void on_lost(const Status& why) = 0;

   protected:
    ~Receiver() = default;
  };

  // The peer must outlive the connection. `end` says which of the two has made it.
  static Result<std::shared_ptr<Connection>> start(Poller& poller, Peer& peer, LaneKind lane,
                                                   Fd socket, const SessionKeys& keys,
                                                   Channel::End end);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool is_open() const { return channel_.is_open(); }
  bool is_blocked() const { return channel_.is_blocked(); }
  int socket() const { return channel_.socket(); }
  FrameWriter& writer() { return channel_.writer(); }
  FrameReader& reader() { return channel_.reader(); }

  bool has_sender() const { return sender_ != nullptr; }
  void attach(Sender& sender) { sender_ = &sender; }
  void attach(Receiver& receiver) { receiver_ = &receiver; }
  // The sender leaves, and is told nothing more. The connection ends if it has no other user. It
  // also ends if only a part of the sender's last payload is written, because the rest belongs to
  // the caller again.
  void leave(const Sender& sender);
  // The receiver leaves, and the connection ends. The peer has left it as well, or must not use it
  // any more.
  void leave(const Receiver& receiver, const Status& why);

  // Sends what the users have to send, for a turn.
  void send_in_turn();
  // Ends the connection, and tells its users.
  void end(const Status& why);

 private:
  Connection(Peer& peer, LaneKind lane) : peer_(peer), lane_(lane) {}
  void on_ready() override;
  Status receive();
  Status read_rest(Status why);
  Status on_messages(std::span<const std::byte> frame);
  Status on_answers(std::span<const std::byte> frame);

  Peer& peer_;
  const LaneKind lane_;
  Channel channel_;
  Sender* sender_ = nullptr;
  Receiver* receiver_ = nullptr;
};

}  // namespace dunlin::transport::tcp
