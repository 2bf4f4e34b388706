// Channel: one end of a connection after its handshake, with the buffers of both directions. Owner
// thread only.
#pragma once

#include <cstddef>

#include "transports/tcp/frame_reader.h"
#include "transports/tcp/frame_writer.h"
#include "transports/tcp/handshake.h"
#include "transports/tcp/poller.h"

namespace dunlin::transport::tcp {

class Channel {
 public:
  // Which end of the connection this is.
  enum class End { kClient, kServer };

  // Takes over the socket. `user` is told when something can be received, and when flush() can go
  // on.
  Status start(Poller& poller, Fd socket, const SessionKeys& keys, End end, SocketUser& user);
  void stop();
  bool is_open() const { return socket_.is_open(); }
  int socket() const { return socket_.get(); }

  FrameWriter& writer() { return writer_; }
  FrameReader& reader() { return reader_; }

  // Writes what the writer holds, but at most `budget` bytes, and takes them from the budget.
  // Returns ok when everything is written. When it returns busy, the user is told once it can go
  // on.
  Status flush(std::size_t& budget);
  // Whether the last flush() was busy.
  bool is_blocked() const { return is_blocked_; }

  // Receives for a turn. Calls `on_messages(span)` or `on_answers(span)` with what each frame
  // holds, and `on_payload()` at the end of each payload. All return a Status, and the first that
  // is not ok ends it. Returns ok if the connection can go on, or else why it cannot.
  template <typename OnMessages, typename OnAnswers, typename OnPayload>
  Status receive(OnMessages&& on_messages, OnAnswers&& on_answers, OnPayload&& on_payload) {
    std::size_t budget = kTurnBytes;
    for (;;) {
      Status filled = reader_.fill(socket_.get(), budget);
      if (filled.is_busy()) return Status::ok();
      DUNLIN_TRY(std::move(filled));
      for (;;) {
        DUNLIN_ASSIGN(const FrameReader::Item item, reader_.next());
        if (item == FrameReader::Item::kNothing) break;
        DUNLIN_TRY(item == FrameReader::Item::kMessages  ? on_messages(reader_.body())
                   : item == FrameReader::Item::kAnswers ? on_answers(reader_.body())
                                                         : on_payload());
      }
      if (reader_.is_drained() || budget == 0) return Status::ok();
    }
  }

 private:
  Fd socket_;
  Watch watch_;  // ends before the socket
  FrameWriter writer_;
  FrameReader reader_;
  bool is_blocked_ = false;
};

}  // namespace dunlin::transport::tcp
