// A hostile network for tests: everything that the Lane contract leaves open happens, drawn from a
// seed, in virtual time. Puts land in pieces, late and in any order; source buffers are read only
// when a piece lands, so that reuse before completion shows; lanes overtake one another; posting is
// refused at random; ranks die. What the contract promises is kept: a notification lands after all
// earlier puts and notifications of its lane.
//
// All ranks live in one thread: a test progresses their protocols and calls step() to let the next
// event happen. The same seed gives the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <random>
#include <vector>

#include "runtime/clock.h"
#include "transports/transport.h"

namespace dunlin::testing {

struct ChaosOptions {
  std::uint64_t seed = 1;
  Duration longest_delay = std::chrono::microseconds(50);
  int pieces = 4;               // a put lands in up to this many
  double refusal = 0.2;         // share of posts that are refused with kBusy
  std::size_t queue_depth = 8;  // operations in flight on a lane
};

class ChaosNetwork {
 public:
  explicit ChaosNetwork(const ChaosOptions& options) : options_(options), random_(options.seed) {}

  // The transport "chaos" of one rank after the other; the network outlives them.
  transport::TransportFactory factory();

  ManualClock& clock() { return clock_; }
  const ChaosOptions& options() const { return options_; }
  // Moves the clock to the next event and lets it happen; false when nothing is in flight.
  bool step();
  std::size_t events_in_flight() const { return events_.size(); }

  // For the transport.
  void at(TimePoint when, std::function<void()> action);
  TimePoint random_time();  // from now to the longest delay
  int random_number(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }
  bool random_chance(double probability) {
    return std::bernoulli_distribution(probability)(random_);
  }
  void attach(Rank rank, transport::NotifyBoard* board);  // null: gone
  transport::NotifyBoard* board_of(Rank rank) const;

 private:
  struct Event {
    TimePoint when;
    std::uint64_t number;  // ties in posting order
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return std::tie(when, number) > std::tie(other.when, other.number);
    }
  };
  ChaosOptions options_;
  std::mt19937_64 random_;
  ManualClock clock_;
  std::priority_queue<Event> events_;
  std::uint64_t posted_ = 0;
  std::map<Rank, transport::NotifyBoard*> boards_;
};

}  // namespace dunlin::testing
