#include "transports/tcp/socket.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>

#include "transports/tcp/constants.h"

namespace dunlin::transport::tcp {
namespace {

void set_option(int socket, int level, int option, int value) {
  // A failure is harmless: these options only tune.
  (void)setsockopt(socket, level, option, &value, sizeof value);
}

// Sends small messages at once, and detects the end of the peer's host on idle connections, too.
void tune(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 5);
}

Result<Fd> make_socket(int family) {
  Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return Status::from_errno("socket", errno);
  return socket;
}

}  // namespace

Result<Fd> listen_at(Endpoint& endpoint) {
  DUNLIN_ASSIGN(Fd socket, make_socket(endpoint.family()));
  // The IPv4 addresses have sockets of their own.
  if (endpoint.family() == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (::bind(socket.get(), endpoint.address(), endpoint.size()) != 0)
    return Status::from_errno("bind to " + endpoint.to_string(), errno);
  if (::listen(socket.get(), kBacklog) != 0)
    return Status::from_errno("listen at " + endpoint.to_string(), errno);
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return Status::from_errno("getsockname", errno);
  endpoint = Endpoint(reinterpret_cast<const sockaddr*>(&bound));
  return socket;
}

Result<Fd> accept_from(int listener, Endpoint& peer) {
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  Fd socket(
      ::accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.is_open()) {
    peer = Endpoint(reinterpret_cast<const sockaddr*>(&from));
    tune(socket.get());
    return socket;
  }
  // A connection that has ended before it was accepted is none.
  if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return Fd();
  return Status::from_errno("accept", errno);
}

Result<Fd> connect_to(const Endpoint& endpoint) {
  DUNLIN_ASSIGN(Fd socket, make_socket(endpoint.family()));
  tune(socket.get());
  if (::connect(socket.get(), endpoint.address(), endpoint.size()) != 0 && errno != EINPROGRESS)
    return Status::from_errno("connect", errno);
  return socket;
}

Status connect_outcome(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  return error == 0 ? Status::ok() : Status::from_errno("connect", error);
}

bool PathWatch::is_silent(int socket, TimePoint now) {
  // The kernel's time of the last acknowledgment is as coarse as its ticks, of 10 ms at most.
  constexpr Duration kCoarseness = std::chrono::milliseconds(20);
  if (now - looked_at_ < interval_) return false;
  looked_at_ = now;
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_unacked == 0) {
    reset();
    return false;
  }
  const TimePoint heard = now - std::chrono::milliseconds(info.tcpi_last_ack_recv);
  if (!waits_since_ || heard + kCoarseness >= *waits_since_) waits_since_ = now;
  return now - *waits_since_ >= silence_;
}

Status receive_whole(int socket, void* to, std::size_t size, std::size_t& done) {
  while (done < size) {
    const ssize_t got = ::recv(socket, static_cast<std::byte*>(to) + done, size - done, 0);
    if (got == 0) return {Code::kClosed, "the peer closed the connection"};
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN ? Status::busy() : Status::from_errno("receive", errno);
    done += static_cast<std::size_t>(got);
  }
  return Status::ok();
}

Status send_whole(int socket, const void* from, std::size_t size) {
  const ssize_t sent = ::send(socket, from, size, MSG_NOSIGNAL);
  if (sent < 0) return Status::from_errno("send", errno);
  if (static_cast<std::size_t>(sent) == size) return Status::ok();
  return {Code::kIoError, "the socket takes no more bytes"};
}

}  // namespace dunlin::transport::tcp
