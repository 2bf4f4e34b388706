// MetricsServer: answers HTTP requests for metrics on a Unix socket, or on a port of the loopback
// interface, with a thread of its own. It serves one client at a time, and none for long.
//
// Every user of the host can connect to a port. Only this user can connect to the socket.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/fd.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::flight {

struct MetricsAddress {
  std::string path;        // of a Unix socket
  std::uint16_t port = 0;  // if the path is empty

  // "unix:PATH", in which %r becomes the rank, or a port, to which the local rank is added.
  static Result<MetricsAddress> parse(std::string_view text, Rank rank, int local_rank);
};

class MetricsServer {
 public:
  // `content()` returns the metrics. The server's thread calls it. A socket that a former process
  // has left at the path is replaced; any other file is kAlreadyExists.
  static Result<std::unique_ptr<MetricsServer>> start(const MetricsAddress& address,
                                                      std::function<std::string()> content);
  // Ends the thread and removes the socket.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

 private:
  MetricsServer(std::string path, Fd listener, Fd end, std::function<std::string()> content);
  void serve();
  void answer(Fd client) const;

  const std::string path_;
  const Fd listener_;
  const Fd end_;  // an eventfd: the thread ends
  const std::function<std::string()> content_;
  std::thread thread_;
};

}  // namespace dunlin::flight
