// FrameWriter: the sending direction of a connection. Messages and answers are collected in frames
// and written together; the payload that follows the last of them is written from where it lies, or
// encrypted into the staging buffer frame by frame. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "runtime/status.h"
#include "transports/tcp/frame.h"

namespace dunlin::transport::tcp {

class FrameWriter {
 public:
  // Begins a connection.
  void start(CipherKind kind, const Key& key);

  // Returns room for a message or an answer of `size` bytes, as `kind` says, in a frame of that
  // kind. Null if flush() must come first, because a payload is attached or the buffer is full.
  std::byte* append(FrameKind kind, std::size_t size);
  // Attaches the payload of the message that was appended last. It is written behind that message.
  // The bytes must stay until flush() returns ok.
  void attach(std::span<const std::byte> payload);
  // Bytes that were appended and not written yet.
  std::size_t staged() const { return end_ - begin_; }
  // Whether a part of the attached payload is still to be read from where it lies.
  bool has_payload() const { return !payload_.empty(); }
  // Writes until everything is written (ok), or the socket takes no more or `budget` bytes have
  // been written (busy). Takes what it writes from the budget.
  Status flush(int socket, std::size_t& budget);

 private:
  std::size_t tag_size() const { return cipher_ ? kTagBytes : 0; }
  void seal(std::size_t header_at, const std::byte* plain, std::size_t size);
  void put_header(std::size_t at, FrameKind kind, std::size_t size);
  void close_frame();
  void seal_payload();
  void announce_payload();
  void consume(std::size_t written);

  std::unique_ptr<std::byte[]> staging_;
  std::size_t begin_ = 0;  // of what is not written yet
  std::size_t end_ = 0;
  std::optional<std::size_t> open_;  // where the frame begins that is being filled
  FrameKind open_kind_{};
  std::span<const std::byte> payload_;  // what is not staged and not written
  std::size_t announced_ = 0;           // bytes of it whose frame header is staged or written
  std::optional<Cipher> cipher_;
  bool is_broken_ = false;  // a frame could not be encrypted: nothing more may be written
};

}  // namespace dunlin::transport::tcp
