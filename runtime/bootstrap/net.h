// TCP for the bootstrap: endpoints, listening, connecting before a deadline, and FrameSocket, a
// non-blocking connection that carries messages. One thread at a time uses each object.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bootstrap/wire.h"
#include "runtime/clock.h"
#include "runtime/fd.h"
#include "runtime/status.h"
#include "runtime/uninherited_fd.h"

namespace dunlin::bootstrap {

struct Endpoint {
  std::string host;  // name or address
  std::uint16_t port = 0;

  // Text such as "10.0.0.1:4711", "host-7:4711" or "[fe80::1]:4711".
  static Result<Endpoint> parse(std::string_view text);
  std::string to_string() const;
  bool operator==(const Endpoint&) const = default;
};

// Where rank 0 must listen so that other ranks can connect to `advertised`. For a numeric address,
// returns that address; for "localhost", the loopback address. For any other name, it returns all
// interfaces. The last is needed because a host's own name often resolves to a loopback address on
// that host.
Endpoint listening_endpoint(const Endpoint& advertised);

// Returns a listening socket. An empty host means all interfaces. Port 0 means any free port, and
// `endpoint.port` becomes the real one.
Result<Fd> listen_on(Endpoint& endpoint);

// Keeps the port from others until the result is closed: the kernel gives it to no socket that asks
// for any free port. A socket that has SO_REUSEADDR and names the port can still listen there.
// `endpoint`: as for listen_on().
Result<Fd> hold_port(Endpoint& endpoint);

// Tries each address of the endpoint once, until `deadline`, and each for its share of the time
// that is left. The socket is non-blocking.
Result<Fd> connect_to(const Endpoint& endpoint, TimePoint deadline);

// The address of the peer, such as "10.0.0.7:51234"; "unknown" when the connection has ended.
std::string peer_address(int socket);

// The IPv4 addresses of the interface with this name; without a name, those of all interfaces
// except loopback.
std::vector<std::string> interface_addresses(std::string_view name = {});

// The address from which this host sends to the address `to`, of `size` bytes. Nothing is sent: the
// kernel is only asked for a route. Nothing if there is none.
std::optional<sockaddr_storage> source_toward(const sockaddr* to, socklen_t size);

// The name of the interface from which this host reaches the endpoint. Nothing if the name is
// unknown or there is no route.
std::optional<std::string> interface_toward(const Endpoint& endpoint);

// Waits for `events` of one descriptor. Returns false when the deadline comes first.
bool wait_for(int fd, short events, TimePoint deadline);

// The timeout in milliseconds for a poll() until `deadline`, rounded up and not negative.
int poll_timeout_ms(TimePoint now, TimePoint deadline);

// FrameSocket sends and receives messages over a non-blocking socket, with a buffer for each
// direction. The largest allowed message bounds the input buffer, kMaxUnsentBytes the output
// buffer.
class FrameSocket {
 public:
  FrameSocket() = default;
  explicit FrameSocket(Fd socket);

  int fd() const { return socket_.get(); }
  bool is_open() const { return socket_.is_open(); }
  void close() { socket_.reset(); }
  // Sends a FIN. close() alone would send a RST instead if bytes have arrived that nobody has read.
  void finish();
  // Closes it with a RST: the other side learns that the connection has failed, and does not take
  // this for the orderly end of a process.
  void abandon();

  // Sets the largest message body that is accepted from now on.
  void allow_body_bytes(std::size_t limit) { max_body_bytes_ = limit; }

  // Reads the bytes that have arrived. Returns kClosed at the end of the stream, and kIoError or
  // the like on a failure. next() still returns the messages that arrived before.
  Status receive();
  // Returns the next complete message, if there is one.
  Result<std::optional<Message>> next();

  // Appends a message and writes as much as the socket accepts. kResourceExhausted when more than
  // kMaxUnsentBytes would wait. kClosed if the other side had closed the connection before it
  // refused what was sent.
  Status send(const Message& message);
  Status flush();
  bool has_unsent() const { return sent_ < outgoing_.size(); }
  std::size_t unsent_bytes() const { return outgoing_.size() - sent_; }

 private:
  UninheritedFd socket_;
  Bytes incoming_;
  std::size_t parsed_ = 0;  // bytes of incoming_ that next() has decoded
  Bytes outgoing_;
  std::size_t sent_ = 0;  // bytes of outgoing_ that the socket has accepted
  std::size_t max_body_bytes_ = 0;
  Status failure_;  // of the connection, but for its orderly end
};

// Waits for the next message until `deadline`.
Result<Message> await_message(FrameSocket& socket, TimePoint deadline);

}  // namespace dunlin::bootstrap
