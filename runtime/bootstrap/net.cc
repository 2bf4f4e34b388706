#include "runtime/bootstrap/net.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "runtime/bootstrap/constants.h"
#include "runtime/config.h"

namespace dunlin::bootstrap {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<AddressList> resolve(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const char* const host = endpoint.host.empty() ? nullptr : endpoint.host.c_str();
  const int error = getaddrinfo(host, std::to_string(endpoint.port).c_str(), &hints, &found);
  if (error != 0) {
    return Status(Code::kUnavailable,
                  fmt::format("cannot resolve '{}': {}", endpoint.host, gai_strerror(error)));
  }
  return AddressList(found, &freeaddrinfo);
}

std::string to_text(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(address, length, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return Endpoint{host, static_cast<std::uint16_t>(std::stoi(port))}.to_string();
}

void set_option(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value,
             sizeof value);  // failure is harmless: these options only tune
}

// Sends small messages at once, and detects the failure of the peer's host on idle connections too.
void tune(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kSilentHostTimeoutMs / 2000);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kSilentHostTimeoutMs / 2000);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kSilentHostTimeoutMs);
}

Result<Fd> bind_at(const addrinfo& address) {
  Fd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return Status::from_errno("socket", errno);
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.ai_family == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    return Status::from_errno("bind", errno);
  }
  return socket;
}

Result<Fd> listen_at(const addrinfo& address) {
  DUNLIN_ASSIGN(Fd socket, bind_at(address));
  if (::listen(socket.get(), SOMAXCONN) != 0) return Status::from_errno("listen", errno);
  return socket;
}

// Opens a socket at the first address of the endpoint where that works, and tells its port.
Result<Fd> open_on(Endpoint& endpoint, Result<Fd> (*open_at)(const addrinfo&),
                   std::string_view what) {
  auto addresses = resolve(endpoint, AI_PASSIVE);
  if (!addresses) return std::move(addresses).status();
  // An IPv6 socket on all interfaces accepts IPv4 connections too, so it is tried first.
  std::vector<const addrinfo*> candidates;
  for (const addrinfo* at = addresses->get(); at != nullptr; at = at->ai_next)
    candidates.push_back(at);
  std::stable_partition(candidates.begin(), candidates.end(),
                        [](const addrinfo* at) { return at->ai_family == AF_INET6; });
  Status last(Code::kUnavailable, "no address");
  for (const addrinfo* at : candidates) {
    auto socket = open_at(*at);
    if (!socket) {
      last = std::move(socket).status();
      continue;
    }
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    getsockname(socket->get(), reinterpret_cast<sockaddr*>(&bound), &length);
    endpoint.port =
        ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
    return socket;
  }
  return std::move(last).with_context(fmt::format("cannot {} {}", what, endpoint.to_string()));
}

bool is_same_address(const sockaddr* one, const sockaddr_storage& other) {
  if (one == nullptr || one->sa_family != other.ss_family) return false;
  if (other.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(one)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(other).sin_addr.s_addr;
  }
  return other.ss_family == AF_INET6 &&
         IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6*>(one)->sin6_addr,
                            &reinterpret_cast<const sockaddr_in6&>(other).sin6_addr);
}

// The name of this host's interface with the address.
std::optional<std::string> interface_with(const sockaddr_storage& address) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (!is_same_address(at->ifa_addr, address)) continue;
    const std::string_view name = at->ifa_name;  // of an alias, such as "eth0:1"
    return std::string(name.substr(0, name.find(':')));
  }
  return std::nullopt;
}

Status finish_connect(int socket, TimePoint deadline) {
  if (!wait_for(socket, POLLOUT, deadline)) {
    return {Code::kDeadlineExceeded, "no answer to the connection request"};
  }
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? Status::ok() : Status::from_errno("connect", error);
}

Result<Fd> connect_at(const addrinfo& address, TimePoint deadline) {
  Fd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return Status::from_errno("socket", errno);
  if (connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return Status::from_errno("connect", errno);
    DUNLIN_TRY(finish_connect(socket.get(), deadline));
  }
  return socket;
}

}  // namespace

Result<Endpoint> Endpoint::parse(std::string_view text) {
  const auto colon = text.rfind(':');
  const Status malformed(Code::kInvalidArgument, fmt::format("'{}' is not HOST:PORT", text));
  if (colon == std::string_view::npos || colon == 0) return malformed;
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}': put an IPv6 address in brackets, [ADDRESS]:PORT", text));
  }
  const auto port = parse_integer(text.substr(colon + 1));
  if (host.empty() || host.find_first_of("[]") != std::string_view::npos || !port || *port < 0 ||
      *port > 65535)
    return malformed;
  return Endpoint{std::string(host), static_cast<std::uint16_t>(*port)};
}

std::string Endpoint::to_string() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Endpoint listening_endpoint(const Endpoint& advertised) {
  if (advertised.host == "localhost") return {"127.0.0.1", advertised.port};
  if (resolve(advertised, AI_NUMERICHOST)) return advertised;
  return {"", advertised.port};
}

Result<Fd> listen_on(Endpoint& endpoint) {
  return open_on(endpoint, &listen_at, "listen at");
}

Result<Fd> hold_port(Endpoint& endpoint) {
  return open_on(endpoint, &bind_at, "hold");
}

Result<Fd> connect_to(const Endpoint& endpoint, TimePoint deadline) {
  auto addresses = resolve(endpoint, 0);
  if (!addresses) return std::move(addresses).status();
  int left = 0;
  for (const addrinfo* at = addresses->get(); at != nullptr; at = at->ai_next) ++left;
  const SteadyClock clock;
  Status last(Code::kUnavailable, "no address");
  for (const addrinfo* at = addresses->get(); at != nullptr; at = at->ai_next) {
    // One that does not answer leaves time for the others.
    const TimePoint now = clock.now();
    auto socket = connect_at(*at, now + std::max(deadline - now, Duration::zero()) / left--);
    if (socket) return socket;
    last = std::move(socket).status();
  }
  return last;
}

std::string peer_address(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "unknown";
  return to_text(reinterpret_cast<const sockaddr*>(&address), length);
}

std::vector<std::string> interface_addresses(std::string_view name) {
  ifaddrs* list = nullptr;
  std::vector<std::string> result;
  if (getifaddrs(&list) != 0) return result;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    const bool is_wanted =
        name.empty() ? (at->ifa_flags & IFF_LOOPBACK) == 0 : name == at->ifa_name;
    if (!is_wanted) continue;
    char host[NI_MAXHOST];
    if (getnameinfo(at->ifa_addr, sizeof(sockaddr_in), host, sizeof host, nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      result.emplace_back(host);
    }
  }
  freeifaddrs(list);
  return result;
}

std::optional<sockaddr_storage> source_toward(const sockaddr* to, socklen_t size) {
  // Connecting a datagram socket only asks the kernel for a route.
  const Fd socket(::socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage source{};
  socklen_t length = sizeof source;
  if (!socket.is_open() || connect(socket.get(), to, size) != 0 ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&source), &length) != 0)
    return std::nullopt;
  return source;
}

std::optional<std::string> interface_toward(const Endpoint& endpoint) {
  auto addresses = resolve(endpoint, 0);
  if (!addresses) return std::nullopt;
  for (const addrinfo* at = addresses->get(); at != nullptr; at = at->ai_next) {
    const auto source = source_toward(at->ai_addr, at->ai_addrlen);
    if (!source) continue;
    if (auto name = interface_with(*source)) return name;
  }
  return std::nullopt;
}

int poll_timeout_ms(TimePoint now, TimePoint deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

bool wait_for(int fd, short events, TimePoint deadline) {
  const SteadyClock clock;
  for (;;) {
    pollfd entry{fd, events, 0};
    const TimePoint now = clock.now();
    const int ready = poll(&entry, 1, poll_timeout_ms(now, deadline));
    if (ready > 0) return true;
    if (clock.now() >= deadline) return false;
  }
}

FrameSocket::FrameSocket(Fd socket)
    : socket_(std::move(socket)), max_body_bytes_(kMaxUnauthenticatedBodyBytes) {
  tune(socket_.get());
}

void FrameSocket::finish() {
  if (is_open()) shutdown(socket_.get(), SHUT_WR);
}

void FrameSocket::abandon() {
  const linger none{.l_onoff = 1, .l_linger = 0};
  if (is_open()) setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
  close();
}

Status FrameSocket::receive() {
  constexpr std::size_t kChunk = 64 << 10;
  std::byte chunk[kChunk];
  incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(parsed_));
  parsed_ = 0;
  const std::size_t limit = kHeaderBytes + max_body_bytes_;
  while (incoming_.size() < limit) {
    const std::size_t room = std::min(kChunk, limit - incoming_.size());
    const ssize_t got = recv(socket_.get(), chunk, room, 0);
    if (got == 0) return {Code::kClosed, "the connection was closed"};
    if (got < 0) {
      if (errno == EAGAIN || errno == EINTR) break;
      return failure_ = Status::from_errno("the connection failed", errno);
    }
    incoming_.insert(incoming_.end(), chunk, chunk + got);
  }
  return Status::ok();
}

Result<std::optional<Message>> FrameSocket::next() {
  std::size_t consumed = 0;
  auto message = decode(std::span(incoming_).subspan(parsed_), max_body_bytes_, consumed);
  parsed_ += consumed;
  return message;
}

Status FrameSocket::send(const Message& message) {
  const Bytes frame = encode(message);
  if (outgoing_.size() - sent_ + frame.size() > kMaxUnsentBytes) {
    return {Code::kResourceExhausted, "the peer does not read its messages"};
  }
  outgoing_.insert(outgoing_.end(), frame.begin(), frame.end());
  return flush();
}

Status FrameSocket::flush() {
  // The system reports a failure once; what it answers later looks like an orderly end.
  DUNLIN_TRY(Status(failure_));
  while (has_unsent()) {
    const ssize_t put =
        ::send(socket_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_, MSG_NOSIGNAL);
    if (put < 0) {
      if (errno == EAGAIN) break;
      if (errno == EINTR) continue;
      // Linux answers with EPIPE, and not with ECONNRESET, to a RST that follows a FIN.
      if (errno == EPIPE) return {Code::kClosed, "the connection was closed"};
      return failure_ = Status::from_errno("the connection failed", errno);
    }
    sent_ += static_cast<std::size_t>(put);
  }
  if (sent_ == outgoing_.size() || sent_ > kMaxBodyBytes) {
    outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
  }
  return Status::ok();
}

Result<Message> await_message(FrameSocket& socket, TimePoint deadline) {
  Status received;  // reported only after all messages that arrived before the failure
  for (;;) {
    auto message = socket.next();
    if (!message) return std::move(message).status();
    if (message->has_value()) return std::move(**message);
    DUNLIN_TRY(received);
    if (!wait_for(socket.fd(), POLLIN, deadline)) {
      return Status(Code::kDeadlineExceeded, "no answer");
    }
    received = socket.receive();
  }
}

}  // namespace dunlin::bootstrap
