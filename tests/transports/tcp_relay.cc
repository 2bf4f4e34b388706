#include "tests/transports/tcp_relay.h"

#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>

namespace dunlin::testing {

using transport::tcp::Address;
using transport::tcp::Endpoint;

Relay::~Relay() {
  shut();
  // shut() keeps new threads from being added.
  for (std::thread& thread : threads_) thread.join();
  for (const Route& route : routes_) close(route.listener);
  for (const Pair& pair : pairs_) {
    close(pair.client);
    close(pair.server);
  }
}

Endpoint Relay::route_to(const Endpoint& target) {
  const std::lock_guard lock(mutex_);
  for (const Route& route : routes_) {
    if (route.target == target) return route.entrance;
  }
  const int listener = socket(target.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  Endpoint place = target;  // of this host, with another port
  place.set_port(0);
  EXPECT_EQ(bind(listener, place.address(), place.size()), 0);
  EXPECT_EQ(listen(listener, 64), 0);
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &size);
  const Endpoint entrance(reinterpret_cast<const sockaddr*>(&bound));
  routes_.push_back({listener, target, entrance});
  if (is_shut_) {
    shutdown(listener, SHUT_RDWR);
  } else {
    threads_.emplace_back([this, &route = routes_.back()] { accept_all(route); });
  }
  return entrance;
}

void Relay::shut() {
  const std::lock_guard lock(mutex_);
  is_shut_ = true;
  for (const Route& route : routes_) shutdown(route.listener, SHUT_RDWR);
  for (const Pair& pair : pairs_) {
    shutdown(pair.client, SHUT_RDWR);
    shutdown(pair.server, SHUT_RDWR);
  }
}

void Relay::accept_all(const Route& route) {
  for (;;) {
    const int client = accept4(route.listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    const int server = socket(route.target.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    const std::lock_guard lock(mutex_);
    const Pair pair{client, server};
    pairs_.push_back(pair);
    if (is_shut_ || connect(server, route.target.address(), route.target.size()) != 0) {
      shutdown(client, SHUT_RDWR);
      continue;
    }
    for (const int side : {client, server}) {
      const int on = 1;
      setsockopt(side, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    const int connection = connections_++;
    ++open_;
    threads_.emplace_back([this, connection, pair] { pump(connection, pair, true); });
    threads_.emplace_back([this, connection, pair] { pump(connection, pair, false); });
  }
}

void Relay::pump(int connection, Pair pair, bool is_to_server) {
  const int from = is_to_server ? pair.client : pair.server;
  const int to = is_to_server ? pair.server : pair.client;
  std::array<std::byte, 16 << 10> buffer;
  Chunk chunk{connection, is_to_server, 0, {}};
  Verdict verdict = Verdict::kGoOn;
  for (bool goes_on = true; goes_on;) {
    const ssize_t got = recv(from, buffer.data(), buffer.size(), 0);
    if (got <= 0) break;
    chunk.bytes.assign(buffer.begin(), buffer.begin() + got);
    {
      const std::lock_guard lock(hook_mutex_);
      verdict = hook_(chunk);
    }
    goes_on = verdict != Verdict::kCut;
    if (verdict == Verdict::kWatch) {
      const timeval timeout{0, 300'000};
      setsockopt(from, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    }
    for (std::size_t sent = 0; sent < chunk.bytes.size();) {
      const ssize_t put =
          send(to, chunk.bytes.data() + sent, chunk.bytes.size() - sent, MSG_NOSIGNAL);
      if (put <= 0) {
        goes_on = false;
        break;
      }
      sent += static_cast<std::size_t>(put);
    }
    chunk.offset += static_cast<std::uint64_t>(got);
  }
  // What has been forwarded still arrives.
  for (const int side : {from, to}) shutdown(side, SHUT_RDWR);
  if (is_to_server) --open_;
}

Result<Bytes> RelayedBootstrap::lookup_from(Rank publisher, std::string_view key,
                                            Duration timeout) {
  DUNLIN_ASSIGN(Bytes value, whole().lookup_from(publisher, key, timeout));
  const bool is_address = key.starts_with("fabric/") && key.find("/tcp/") != key.npos;
  if (!is_address || value.empty()) return value;
  DUNLIN_ASSIGN(Address address, Address::decode(value));
  address.endpoints = {relay_.route_to(address.endpoints.front())};
  return address.encode();
}

}  // namespace dunlin::testing
