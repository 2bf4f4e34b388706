// Session: what one side of a connection has to know so that the next connection loses nothing.
//
// Both sides count the messages that they have received, and keep those that they have sent until
// the other side has counted them. All messages are counted, except heartbeats and those of the
// handshake, which carry the counts. A new connection begins with an exchange of the counts; then
// each side sends again what the other one lacks. So every message arrives once, in order. One
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "runtime/bootstrap/wire.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

class Session {
 public:
  // Keeps a message that is about to be sent. If more than `most_bytes` would be kept, returns
  // kResourceExhausted and does not keep the message.
  Status keep(const Message& message, std::size_t most_bytes);
  // To be called when the other side says that it has received the first `count` messages. Returns
  // kCorrupted and changes nothing if that is impossible: fewer were sent, or the other side has
  // counted more before.
  Status acknowledge(std::uint64_t count);
  // The caller of `request` has given it up: what would be sent again of it becomes a kCancel, so
  // that the count stays.
  void withdraw(std::uint64_t request);
  // The messages to send again on a new connection, oldest first.
  const std::deque<Message>& kept() const { return kept_; }

  // Counts a message that has arrived.
  void note_received(const Message& message);
  // How many messages have arrived in all. The caller tells the other side, and then calls
  // note_told().
  std::uint64_t received() const { return received_; }
  void note_told() { untold_messages_ = untold_bytes_ = 0; }
  // True if so much has arrived since note_told() that the other side should be told before the
  // next heartbeat, because it keeps all of it until then.
  bool is_telling_due() const {
    return untold_messages_ >= kUntoldMessages || untold_bytes_ >= kUntoldBytes;
  }

 private:
  // The other side can keep this much, and the message that tells it costs little beside so much.
  static constexpr std::size_t kUntoldMessages = 64;
  static constexpr std::size_t kUntoldBytes = std::size_t{256} << 10;

  std::deque<Message> kept_;
  std::size_t kept_bytes_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t received_ = 0;
  std::size_t untold_messages_ = 0;
  std::size_t untold_bytes_ = 0;
};

}  // namespace dunlin::bootstrap
