// Poller and Watch: which sockets are ready. The poller owns an epoll descriptor; a Watch
// registers one socket with it for as long as it is active. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/fd.h"
#include "runtime/status.h"

namespace dunlin::transport::tcp {

// An object whose socket is watched.
class SocketUser {
 public:
  // The socket can be read or written, or has failed. The function may end this watch, and others.
  virtual void on_ready() = 0;

 protected:
  ~SocketUser() = default;
};

class Poller {
 public:
  static Result<std::unique_ptr<Poller>> create();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Calls on_ready() of the users whose sockets are ready, without waiting. Returns their number.
  std::size_t poll();
  // Readable while a socket is ready.
  int fd() const { return epoll_.get(); }

 private:
  friend class Watch;
  struct Place {
    SocketUser* user = nullptr;
    std::uint32_t generation = 0;  // counts the watches that had this place
  };

  explicit Poller(Fd epoll) : epoll_(std::move(epoll)) {}

  Fd epoll_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> free_;
};

class Watch {
 public:
  Watch() = default;
  ~Watch() { stop(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Watches until stop(), which must come before the socket is closed. The poller, the socket and
  // the user must exist until then.
  Status start(Poller& poller, int socket, SocketUser& user, bool wants_write = false);
  void stop();
  void want(bool read, bool write);

 private:
  std::uint64_t name() const;

  Poller* poller_ = nullptr;
  int socket_ = -1;
  std::uint32_t place_ = 0;
  std::uint32_t events_ = 0;
};

}  // namespace dunlin::transport::tcp
