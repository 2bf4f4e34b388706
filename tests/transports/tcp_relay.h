// Relay: stands between the two ends of TCP connections, and sees, changes or cuts what travels.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/forwarding_bootstrap.h"
#include "transports/tcp/address.h"

namespace dunlin::testing {

class Relay {
 public:
  // Bytes on their way. They are forwarded as the hook leaves them.
  struct Chunk {
    int connection;        // counts those that were made through the relay, from 0
    bool is_to_server;     // or back to the end that connected
    std::uint64_t offset;  // of the first byte, in its direction of its connection
    std::vector<std::byte> bytes;
  };
  // What to do after the bytes have been forwarded. kWatch: go on, but cut the connection if
  // nothing more arrives in this direction for a while. An end that has got too few bytes of a
  // frame waits for the others, as it would for those of a peer that has fallen silent.
  enum class Verdict { kGoOn, kCut, kWatch };
  // It is called by several threads, one at a time.
  using Hook = std::function<Verdict(Chunk&)>;

  explicit Relay(Hook hook) : hook_(std::move(hook)) {}
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Returns where to connect to in order to reach the target through the relay. Any thread.
  transport::tcp::Endpoint route_to(const transport::tcp::Endpoint& target);
  // Cuts all connections and refuses new ones.
  void shut();
  int connections() const { return connections_; }
  // Those that neither end nor the hook has ended.
  int open_connections() const { return open_; }

 private:
  struct Route {
    int listener;
    transport::tcp::Endpoint target;
    transport::tcp::Endpoint entrance;
  };
  struct Pair {
    int client;
    int server;
  };

  void accept_all(const Route& route);
  void pump(int connection, Pair pair, bool is_to_server);

  Hook hook_;
  std::mutex hook_mutex_;
  std::mutex mutex_;
  std::list<Route> routes_;
  std::vector<Pair> pairs_;
  std::list<std::thread> threads_;
  bool is_shut_ = false;
  std::atomic<int> connections_{0};
  std::atomic<int> open_{0};
};

// A bootstrap through which all addresses of tcp transports lead to the relay.
class RelayedBootstrap final : public ForwardingBootstrap {
 public:
  // Both must outlive this object.
  RelayedBootstrap(Bootstrap& whole, Relay& relay) : ForwardingBootstrap(whole), relay_(relay) {}

  Result<Bytes> lookup_from(Rank publisher, std::string_view key, Duration timeout) override;

 private:
  Relay& relay_;
};

}  // namespace dunlin::testing
