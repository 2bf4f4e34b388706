// FrameReader: the receiving direction of a connection. It yields what whole frames hold, and
// writes the payload that follows a message to where it belongs: straight from the socket, or, if
// the connection is encrypted, frame by frame, once a frame has been authenticated. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "runtime/status.h"
#include "transports/tcp/frame.h"

namespace dunlin::transport::tcp {

class FrameReader {
 public:
  // Begins a connection.
  void start(CipherKind kind, const Key& key);

  // Reads once from the socket. Returns ok if bytes have arrived, busy if there are none, kClosed
  // at the end of the stream, and the error of a broken connection. Takes what it reads from the
  // budget.
  Status fill(int socket, std::size_t& budget);
  // Whether the last fill() got less than it asked for, so that the socket is empty for now.
  bool is_drained() const { return is_drained_; }

  enum class Item { kNothing, kMessages, kAnswers, kPayload };
  // Returns what comes next among the bytes that were read: a frame of messages or of answers, or
  // the end of the payload that was expected. kCorrupted if the bytes are not what the peer has
  // sent, or not frames.
  Result<Item> next();
  // What is in the frame. It is valid until the next call of next() or fill().
  std::span<const std::byte> body() const { return body_; }

  // The next `size` bytes (not 0) are a payload. They are written to `to`, or dropped if it is
  // null.
  void expect(std::byte* to, std::size_t size);
  bool expects_payload() const { return expected_ != 0; }
  // The rest of the payload is dropped.
  void drop_payload() { target_ = nullptr; }

 private:
  Result<Item> next_frame();
  void take_plain_payload();
  void advance_payload(std::size_t size);

  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;  // of what was read and not yet used
  std::size_t end_ = 0;
  std::span<const std::byte> body_;
  std::byte* target_ = nullptr;  // where the next bytes of the payload go
  std::size_t expected_ = 0;     // bytes of the payload that have not arrived
  std::size_t in_frame_ = 0;     // those of them that belong to the current plain frame
  bool has_arrived_ = false;     // the payload is complete, and next() has not said so
  bool is_drained_ = false;
  std::optional<Cipher> cipher_;
};

}  // namespace dunlin::transport::tcp
