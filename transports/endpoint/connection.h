// Connection: one end of a connection between two endpoints (transports/endpoint/endpoint.h).
//
// A connection is usable when status() is ok. It ends when either side destroys its end, when the
// peer's process ends, or when the network fails for longer than its transport can bridge. Then
// status() says why, for good; all operations in progress complete with an error, and nothing else
// of the endpoint is affected. Owner thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bytes.h"
#include "runtime/status.h"
#include "transports/endpoint/control_service.h"
#include "transports/endpoint/messages.h"
#include "transports/endpoint/pair_bootstrap.h"
#include "transports/fabric.h"

namespace dunlin::transport {

class Endpoint;

// The number of memory that an endpoint has registered.
enum class MemoryId : std::uint64_t {};

namespace endpoint {
// The memory that an endpoint has registered.
using Registry = std::map<MemoryId, std::shared_ptr<MemoryRegion>>;
}  // namespace endpoint

class Connection {
 public:
  // The largest message.
  static constexpr std::size_t kMaxMessage = std::size_t{16} << 20;

  // Orderly: the peer reads the messages that have been sent, and learns that this side has left.
  // Operations in progress complete, with their outcome or an error. Waits as finish() says.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // kBusy while the connection is being made, ok while it is usable, and otherwise the error with
  // which it has ended: kPeerDead, or kClosed if the peer has left.
  const Status& status() const { return status_; }
  // Whether it is usable now or was until it ended: then messages may be left to read.
  bool has_been_usable() const { return has_opened_; }
  // What the peer says of itself, once the connection is usable.
  const Bytes& greeting() const { return peers_greeting_; }
  // The name of the transport between the two.
  std::string_view transport() const { return transport_; }

  // Puts, gets and flushes of this connection, under the contract of transports/lane.h. A flush
  // tells when the peer can see what was put. Valid while the connection lives, usable or not; call
  // it only once the connection has been usable.
  Lane& lane() { return link_->data(); }
  // A part of memory that this endpoint has registered, as the local end of operations of this
  // connection. Registers the memory with the transport at the first call. kNotFound if the number
  // is not registered, kOutOfRange if the part does not lie within the memory.
  Result<LocalSlice> local(MemoryId id, std::size_t offset, std::size_t size);
  // The peer's memory with this number, for remote ends. The first call asks the peer; kBusy until
  // it has answered. kNotFound if the peer has not registered it. The result is valid until
  // forget(), or the end of the connection.
  Result<RemoteRegion*> remote(MemoryId id);
  // Forgets the peer's memory, which no operation in progress may use.
  void forget(MemoryId id);

  // Sends a message. The peer receives it behind everything that lane() has put before this call,
  // and behind earlier messages. The bytes are copied. kBusy if too much waits to be sent.
  Status send(std::span<const std::byte> message);
  // The next message of the peer, if one has arrived. Works after the end, too, until all that had
  // arrived has been read.
  std::optional<Bytes> receive();
  // How many messages, among them some of the connection's own, were not handed to the transport
  // yet: progress() does that when the peer has taken earlier ones.
  std::size_t unsent() const { return messages_ == nullptr ? 0 : messages_->unsent(); }
  bool has_sent_all() const { return unsent() == 0; }

  // Endpoint::progress() calls it for all connections.
  std::size_t progress();

  // Prepares the end, for programs that must not wait in the destructor: call it, and progress(),
  // until it returns true. Post and send nothing meanwhile. It is true when the peer has got what
  // was posted and sent, when the peer has had a second for that since the first call, and when the
  // connection has ended or was not usable yet. A connection attempt that is in progress is
  // canceled, which takes up to three seconds.
  bool finish();
  // Ends this side now. Operations in progress complete with an error, and messages may be lost.
  void close();

 private:
  friend Endpoint;
  // What the sides do in turn until the connection is usable.
  enum class Step { kDial, kMeet, kLink, kSlots, kGreeting, kConfirm, kOpen, kEnded };

  Connection(Endpoint& owner, Step first, Bytes greeting);
  Connection(Endpoint& owner, std::unique_ptr<endpoint::Dial> dial, Bytes greeting);
  Connection(Endpoint& owner, std::shared_ptr<endpoint::ControlLine> line, Bytes greeting);
  // Takes the steps that can be taken now.
  Status advance();
  Status open_link();
  Status open_messages();
  Status ask();
  Status confirm();
  // kBusy: asked in vain, to be asked again. Keeps the answer for the error of a deadline.
  Status not_yet(const Status& answer);
  // What the connection waits for until it is usable.
  std::string_view awaited() const;
  void open();
  // Tells the peer that this side ends the connection.
  void leave();
  void end(Status why);
  void handle(endpoint::MessageKind kind, Bytes message);
  void answer_import(std::span<const std::byte> request);
  void take_import(std::span<const std::byte> answer);
  Result<LocalRegion*> region(MemoryId id);
  Rank peer() const;
  // For Endpoint's functions of the same names.
  bool arm();
  void disarm();
  void append_wait_fds(std::vector<int>& fds) const;
  // The endpoint has deregistered it.
  void on_deregister(MemoryId id) { regions_.erase(id); }

  // A peer's memory: asked for, imported, or refused.
  struct Import {
    Status status = Status::busy();
    std::unique_ptr<RemoteRegion> region;
  };

  Endpoint& owner_;
  Config config_;
  Step step_;
  Status status_ = Status::busy();
  bool has_opened_ = false;
  Bytes greeting_;
  Bytes peers_greeting_;
  bool has_greeting_ = false;
  std::string transport_;
  TimePoint deadline_;    // by which the connection must be usable
  TimePoint next_try_{};  // of a step that asks somebody
  std::string last_answer_;
  std::unique_ptr<endpoint::Dial> dial_;
  std::shared_ptr<endpoint::ControlLine> line_;  // until the bootstrap has it
  std::unique_ptr<endpoint::PairBootstrap> bootstrap_;
  std::unique_ptr<Fabric> fabric_;
  Link* link_ = nullptr;
  std::map<MemoryId, std::unique_ptr<LocalRegion>> regions_;
  std::map<MemoryId, Import> imports_;
  std::unique_ptr<SlotExchange> slots_;
  std::unique_ptr<endpoint::MessageStream> messages_;
  std::optional<TimePoint> finish_by_;  // once finish() has been called
  bool is_flush_posted_ = false;        // by finish()
  Completion flushed_;                  // of that flush
  std::deque<Bytes> inbox_;
  std::size_t inbox_bytes_ = 0;
};

}  // namespace dunlin::transport
