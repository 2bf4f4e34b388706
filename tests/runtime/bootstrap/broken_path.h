// BrokenPath: the network between a rank and its coordinator, which can fall silent, be cut with
// RSTs, and heal.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <thread>

#include "runtime/bootstrap/net.h"

namespace dunlin::bootstrap {

class BrokenPath {
 public:
  explicit BrokenPath(Endpoint target);
  ~BrokenPath();
  BrokenPath(const BrokenPath&) = delete;
  BrokenPath& operator=(const BrokenPath&) = delete;

  // The endpoint to connect to instead of the target.
  const Endpoint& entrance() const { return entrance_; }

  // Any one thread at a time. Each has taken effect when it returns.
  void heal() { set(State::kOpen); }
  // Bytes stay where they are, ends of connections too, and new connections get no answer.
  void silence() { set(State::kSilent); }
  // Connections end with a RST, new ones as well.
  void cut() { set(State::kCut); }
  // How many connections it has passed on.
  int connections() const { return connections_; }

 private:
  enum class State { kOpen, kSilent, kCut, kEnd };
  struct Pair {
    Fd client;
    Fd server;
    Bytes to_server;
    Bytes to_client;
  };

  void set(State state);
  void run();
  void wait_for_events(State state);
  void accept(State state);
  static bool pass(Fd& from, Fd& to, Bytes& held);
  static void reset(Fd& socket);

  Endpoint target_;
  Endpoint entrance_{"127.0.0.1", 0};
  Fd listener_;
  Fd wake_;
  std::atomic<State> state_{State::kOpen};
  std::atomic<State> seen_{State::kOpen};  // by the thread
  std::atomic<int> connections_{0};
  std::list<Pair> pairs_;  // of the thread
  std::thread thread_;
};

}  // namespace dunlin::bootstrap
