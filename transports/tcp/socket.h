// The system calls around TCP sockets. All sockets are non-blocking.
#pragma once

#include <optional>

#include "runtime/clock.h"
#include "runtime/fd.h"
#include "runtime/status.h"
#include "transports/tcp/address.h"

namespace dunlin::transport::tcp {

// Returns a socket that listens at the endpoint, and sets its port if that is 0.
Result<Fd> listen_at(Endpoint& endpoint);
// Returns the next connection, a closed Fd if there is none, or an error. Sets the peer's address.
Result<Fd> accept_from(int listener, Endpoint& peer);
// Begins to connect. The socket becomes writable when that has succeeded or failed.
Result<Fd> connect_to(const Endpoint& endpoint);
// The outcome, once the socket is writable.
Status connect_outcome(int socket);
// Finds out whether the path to the peer's host is broken: bytes wait for an acknowledgment of the
// peer's kernel, which has sent none for some time.
class PathWatch {
 public:
  // It looks at the socket once in an `interval`.
  PathWatch(Duration silence, Duration interval) : silence_(silence), interval_(interval) {}

  // Call it again and again while bytes are to be sent. True if bytes have waited since a look at
  // least `silence` ago, and no acknowledgment has arrived since. That none has arrived for long
  // says nothing by itself: a socket that was idle until now has not heard anything for long,
  // either.
  bool is_silent(int socket, TimePoint now);
  // For another socket.
  void reset() { waits_since_.reset(); }

 private:
  Duration silence_;
  Duration interval_;
  TimePoint looked_at_{};
  std::optional<TimePoint> waits_since_;
};

// Reads as many bytes of a fixed-size message as there are, behind the `done` that were read
// before, and adds to `done`. Returns ok once all are there, and busy before.
Status receive_whole(int socket, void* to, std::size_t size, std::size_t& done);
// Sends a message that fits into an empty socket buffer.
Status send_whole(int socket, const void* from, std::size_t size);

}  // namespace dunlin::transport::tcp
