#include "runtime/flight/metrics_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "runtime/bootstrap/net.h"
#include "runtime/bootstrap/printable.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/clock.h"
#include "runtime/config.h"

namespace dunlin::flight {
namespace {

constexpr int kBacklog = 8;
// A client sends its request at once, and reads the answer at once.
constexpr Duration kClientTime = std::chrono::seconds(1);
// How long the server waits when the process or the host has no descriptor left.
constexpr int kScarcityPauseMs = 100;
constexpr std::size_t kMostRequestBytes = 4096;

Status error_of(std::string_view what) {
  return Status::from_errno(what, errno);
}

// Removes the socket of a process that has ended. One that somebody listens at stays.
Status make_room(const sockaddr_un& address) {
  struct stat info {};
  if (lstat(address.sun_path, &info) != 0) return Status::ok();
  Status taken(Code::kAlreadyExists, fmt::format("{} is in use", address.sun_path));
  if (!S_ISSOCK(info.st_mode) || info.st_uid != geteuid()) return taken;
  // A listener that accepts nobody, and whose queue is full, counts as well: connect() would block.
  const Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno != ECONNREFUSED) {
    return taken;
  }
  unlink(address.sun_path);
  return Status::ok();
}

Result<Fd> listen_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} has more than {} characters", path, sizeof address.sun_path - 1));
  }
  path.copy(address.sun_path, path.size());
  DUNLIN_TRY(make_room(address));
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // The mode of the socket becomes that of the file, so that there is no moment with another one.
  if (!fd.is_open() || fchmod(fd.get(), 0600) != 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return error_of("listening at " + path);
  }
  return fd;
}

std::string response(const char* status, const std::string& body) {
  return fmt::format(
      "HTTP/1.0 {}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      status, body.size(), body);
}

}  // namespace

Result<MetricsAddress> MetricsAddress::parse(std::string_view text, Rank rank, int local_rank) {
  constexpr std::string_view kUnix = "unix:";
  MetricsAddress address;
  if (text.starts_with(kUnix) && text.size() > kUnix.size()) {
    address.path = text.substr(kUnix.size());
    if (const auto at = address.path.find("%r"); at != std::string::npos)
      address.path.replace(at, 2, std::to_string(rank.value()));
    return address;
  }
  const auto port = parse_integer(text);
  if (!port || *port < 1 || *port > UINT16_MAX) {
    return Status(Code::kInvalidArgument, fmt::format("'{}': give unix:PATH or a port from 1 to {}",
                                                      bootstrap::printable(text), UINT16_MAX));
  }
  if (*port + local_rank > UINT16_MAX) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: local rank {} would listen at port {}, and the last one is {}",
                              *port, local_rank, *port + local_rank, UINT16_MAX));
  }
  address.port = static_cast<std::uint16_t>(*port + local_rank);
  return address;
}

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const MetricsAddress& address,
                                                            std::function<std::string()> content) {
  Fd listener;
  if (!address.path.empty()) {
    DUNLIN_ASSIGN(listener, listen_at(address.path));
  } else {
    bootstrap::Endpoint endpoint{"127.0.0.1", address.port};
    DUNLIN_ASSIGN(listener, bootstrap::listen_on(endpoint));
  }
  Fd end(eventfd(0, EFD_CLOEXEC));
  if (!end.is_open()) return error_of("eventfd");
  std::unique_ptr<MetricsServer> server(
      new MetricsServer(address.path, std::move(listener), std::move(end), std::move(content)));
  DUNLIN_ASSIGN(server->thread_, bootstrap::start_service_thread(
                                     "dunlin-metrics", [raw = server.get()] { raw->serve(); }));
  return server;
}

MetricsServer::MetricsServer(std::string path, Fd listener, Fd end,
                             std::function<std::string()> content)
    : path_(std::move(path)),
      listener_(std::move(listener)),
      end_(std::move(end)),
      content_(std::move(content)) {}

MetricsServer::~MetricsServer() {
  if (!thread_.joinable()) return;
  eventfd_write(end_.get(), 1);
  thread_.join();
  if (!path_.empty()) unlink(path_.c_str());
}

void MetricsServer::serve() {
  for (;;) {
    std::array<pollfd, 2> entries{{{listener_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}}};
    if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return;
    if (entries[1].revents != 0) return;
    if (entries[0].revents == 0) continue;
    Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.is_open()) {
      answer(std::move(client));
      continue;
    }
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) continue;
    // The client stays in the queue, so the next poll() would return at once.
    if (poll(&entries[1], 1, kScarcityPauseMs) > 0) return;
  }
}

void MetricsServer::answer(Fd client) const {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + kClientTime;
  std::string request;
  while (request.find("\r\n\r\n") == std::string::npos &&
         request.find("\n\n") == std::string::npos) {
    std::array<char, 1024> buffer;
    if (request.size() > kMostRequestBytes || !bootstrap::wait_for(client.get(), POLLIN, deadline))
      return;
    const ssize_t size = recv(client.get(), buffer.data(), buffer.size(), 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (size <= 0) return;
    request.append(buffer.data(), static_cast<std::size_t>(size));
  }
  const bool is_known = request.starts_with("GET /metrics ") || request.starts_with("GET / ");
  const std::string text =
      is_known ? response("200 OK", content_()) : response("404 Not Found", "see /metrics\n");
  for (std::size_t sent = 0; sent < text.size();) {
    if (!bootstrap::wait_for(client.get(), POLLOUT, deadline)) return;
    const ssize_t size = send(client.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (size < 0 && errno != EAGAIN && errno != EINTR) return;
    if (size > 0) sent += static_cast<std::size_t>(size);
  }
  shutdown(client.get(), SHUT_WR);
}

}  // namespace dunlin::flight
