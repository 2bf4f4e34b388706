// TCP as the bootstrap uses it: endpoints, listening, connecting before a deadline, and
// FrameSocket, a non-blocking connection that carries messages. No object here is shared between
// threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bootstrap/wire.h"
#include "runtime/clock.h"
#include "runtime/fd.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

struct Endpoint {
  std::string host;  // name or address
  std::uint16_t port = 0;

  // "10.0.0.1:4711", "node7:4711", "[fe80::1]:4711".
  static Result<Endpoint> parse(std::string_view text);
  std::string to_string() const;
  bool operator==(const Endpoint&) const = default;
};

// Where rank 0 listens so that `advertised` reaches it: at a numeric address exactly; at loopback
// for "localhost"; for any other name at all interfaces, because a host's own name often resolves
// to a loopback address on that host and to the outer one everywhere else.
Endpoint listening_endpoint(const Endpoint& advertised);

// A listening socket; an empty host means all interfaces, port 0 any free one. `endpoint.port`
// becomes the real port.
Result<Fd> listen_on(Endpoint& endpoint);

// One attempt to connect, until `deadline` at most. The socket is non-blocking.
Result<Fd> connect_to(const Endpoint& endpoint, TimePoint deadline);

// "10.0.0.7:51234" of the other side; "unknown" when it has gone.
std::string peer_address(int socket);

// The addresses of this host's interfaces, loopback excluded.
std::vector<std::string> interface_addresses();

// poll() on one descriptor; false when the deadline came first.
bool wait_for(int fd, short events, TimePoint deadline);

// Milliseconds for poll() until `deadline`: rounded up, never negative.
int poll_timeout_ms(TimePoint now, TimePoint deadline);

// Messages over a non-blocking socket, buffered in both directions. Reading is bounded by the
// largest message allowed, writing by kMaxUnsentBytes.
class FrameSocket {
 public:
  FrameSocket() = default;
  explicit FrameSocket(Fd socket);

  int fd() const { return socket_.get(); }
  bool is_open() const { return socket_.is_open(); }
  void close() { socket_.reset(); }

  // Bodies larger than this are refused from now on.
  void allow_body_bytes(std::size_t limit) { max_body_bytes_ = limit; }

  // Reads what has arrived. kClosed at the end of the stream, kIoError and the like on failure;
  // what came before is still there for next().
  Status receive();
  // The next complete message, if there is one.
  Result<std::optional<Message>> next();

  // Appends a message and writes what the socket takes. kResourceExhausted when too much waits.
  Status send(const Message& message);
  Status flush();
  bool has_unsent() const { return sent_ < outgoing_.size(); }

 private:
  Fd socket_;
  Bytes incoming_;
  std::size_t parsed_ = 0;  // of incoming_
  Bytes outgoing_;
  std::size_t sent_ = 0;  // of outgoing_
  std::size_t max_body_bytes_ = 0;
};

// The next message of a connection whose peer owes one; waits until `deadline`.
Result<Message> await_message(FrameSocket& socket, TimePoint deadline);

}  // namespace dunlin::bootstrap
