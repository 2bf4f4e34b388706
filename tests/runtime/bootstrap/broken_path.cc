#include "tests/runtime/bootstrap/broken_path.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

namespace dunlin::bootstrap {

BrokenPath::BrokenPath(Endpoint target)
    : target_(std::move(target)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  listener_ = listen_on(entrance_).value();
  thread_ = std::thread([this] { run(); });
}

BrokenPath::~BrokenPath() {
  set(State::kEnd);
  thread_.join();
}

void BrokenPath::set(State state) {
  state_ = state;
  eventfd_write(wake_.get(), 1);
  while (seen_ != state) std::this_thread::yield();
}

void BrokenPath::reset(Fd& socket) {
  const linger none{.l_onoff = 1, .l_linger = 0};
  if (socket.is_open()) setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
  socket.reset();
}

void BrokenPath::run() {
  for (;;) {
    const State state = state_;
    if (state == State::kOpen || state == State::kCut) accept(state);
    if (state == State::kCut) {
      for (Pair& pair : pairs_) {
        reset(pair.client);
        reset(pair.server);
      }
      pairs_.clear();
    }
    if (state == State::kOpen) {
      std::erase_if(pairs_, [](Pair& pair) {
        return !pass(pair.client, pair.server, pair.to_server) ||
               !pass(pair.server, pair.client, pair.to_client);
      });
    }
    seen_ = state;
    if (state == State::kEnd) return;
    wait_for_events(state);
  }
}

void BrokenPath::accept(State state) {
  for (;;) {
    Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client.is_open()) return;
    if (state == State::kCut) {
      reset(client);
      continue;
    }
    auto server = connect_to(target_, SteadyClock().now() + std::chrono::seconds(10));
    if (!server) continue;
    ++connections_;
    pairs_.push_back({std::move(client), std::move(*server), {}, {}});
  }
}

// Returns false when the connection has ended: then both of its sockets close in the same way.
bool BrokenPath::pass(Fd& from, Fd& to, Bytes& held) {
  std::array<std::byte, 65536> chunk;
  for (;;) {
    while (!held.empty()) {
      const ssize_t sent = send(to.get(), held.data(), held.size(), MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN;
      held.erase(held.begin(), held.begin() + sent);
    }
    const ssize_t got = recv(from.get(), chunk.data(), chunk.size(), 0);
    if (got > 0) {
      held.assign(chunk.begin(), chunk.begin() + got);
      continue;
    }
    if (got < 0 && errno == EAGAIN) return true;
    if (got < 0) reset(to);
    return false;
  }
}

void BrokenPath::wait_for_events(State state) {
  std::vector<pollfd> entries{{wake_.get(), POLLIN, 0}};
  if (state != State::kSilent) entries.push_back({listener_.get(), POLLIN, 0});
  for (const Pair& pair : pairs_) {
    if (state != State::kOpen) break;
    for (const auto* const each : {&pair.client, &pair.server}) {
      const Bytes& held = each == &pair.client ? pair.to_client : pair.to_server;
      entries.push_back({each->get(), static_cast<short>(held.empty() ? POLLIN : POLLOUT), 0});
    }
  }
  poll(entries.data(), entries.size(), 1000);
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
}

}  // namespace dunlin::bootstrap
