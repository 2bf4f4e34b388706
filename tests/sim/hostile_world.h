// HostileWorld: all ranks of a job in this thread, in virtual time, on a network that does
// everything that the Lane contract allows. The same seed gives the same run. In a quarter of the
// seeds, ranks have one another's memory mapped.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "runtime/bootstrap/bootstrap.h"
#include "transports/fabric.h"
#include "transports/sim/network.h"

namespace dunlin::testing {

class HostileWorld {
 public:
  HostileWorld(std::uint64_t seed, int size)
      : network_(transport::sim::Network::create(options(seed, size)).value()),
        job_(size),
        random_(seed) {
    config_ = Config::parse(Environment()).value();
    config_.transports = {"sim"};
    for (int rank = 0; rank < size; ++rank) {
      bootstraps_.push_back(job_.bootstrap(Rank(rank)));
      fabrics_.push_back(transport::Fabric::create(*bootstraps_.back(), config_, network_->clock(),
                                                   nullptr, {network_->factory()})
                             .value());
    }
  }

  // Independent of the queue depth, which seed % 8 decides.
  static bool maps_memory(std::uint64_t seed) { return seed / 8 % 4 == 1; }

  transport::Fabric& fabric(int rank) { return *fabrics_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(fabrics_.size()); }
  InProcessJob& job() { return job_; }
  transport::sim::Network& network() { return *network_; }
  // Lets time pass in which no rank acts.
  void sleep(Duration time) {
    const TimePoint until = network_->now() + time;
    network_->wake_at(Rank(0), until);
    while (network_->now() < until && network_->step()) {
    }
  }
  std::mt19937_64& random() { return random_; }

  // Lets ranks act between events, in random order and each at random times, until `act` returns
  // true for all ranks. Time also passes when no event is pending, for ranks that wait for a
  // timeout. Returns false when nothing moves any more, for `most_idle` microseconds.
  bool run(const std::function<bool(int)>& act, long most_idle = 100'000) {
    std::vector<bool> is_done(fabrics_.size());
    long idle = 0;
    for (long event = 0; event < kMostEvents; ++event) {
      const int rank = static_cast<int>(random_() % fabrics_.size());
      fabric(rank).progress();
      is_done[static_cast<std::size_t>(rank)] = act(rank);
      if (std::find(is_done.begin(), is_done.end(), false) == is_done.end()) return true;
      if (random_() % 4 == 0) continue;
      idle = network_->events_in_flight() == 0 ? idle + 1 : 0;
      if (idle > 0) network_->wake_at(Rank(0), network_->now() + std::chrono::microseconds(1));
      network_->step();
      if (idle > most_idle) return false;
    }
    return false;
  }

 private:
  static constexpr long kMostEvents = 4'000'000;  // far beyond any run that doesn't hang

  static transport::sim::Options options(std::uint64_t seed, int size) {
    transport::sim::Options options;
    options.ranks = size;
    options.maps_memory = maps_memory(seed);
    options.seed = seed;
    options.queue_depth = 1 + seed % 8;
    options.hostility.emplace().refusal = 0.1 * static_cast<double>(seed % 6);
    return options;
  }

  std::unique_ptr<transport::sim::Network> network_;
  InProcessJob job_;
  Config config_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Bootstrap>> bootstraps_;
  std::vector<std::unique_ptr<transport::Fabric>> fabrics_;
};

// Each rank's collective (an object with start() and test(), such as a reduce) runs for `rounds`,
// and one rank dies at a random moment. Every other rank comes to an end: with all rounds done, or
// with an error or a wait that knows of the death.
template <typename Collectives>
void expect_death_is_seen(HostileWorld& world, Collectives& collectives, std::uint64_t rounds,
                          std::uint64_t seed) {
  const int victim = static_cast<int>(world.random()() % static_cast<std::uint64_t>(world.size()));
  const auto last_act = static_cast<long>(world.random()() % 2000);
  std::vector<std::uint64_t> done(collectives.size());
  std::vector<bool> is_running(collectives.size());
  std::vector<bool> is_over(collectives.size());
  long acts = 0;
  const bool is_finished = world.run([&](int rank) -> bool {
    const auto self = static_cast<std::size_t>(rank);
    if (rank == victim && ++acts == last_act) world.job().kill(Rank(victim), "by the test");
    if (rank == victim && acts >= last_act) return true;
    if (is_over[self] || done[self] == rounds) return true;
    Status status = is_running[self] ? Status::ok() : collectives[self]->start();
    is_running[self] = true;
    if (status.is_ok()) status = collectives[self]->test();
    if (status.is_ok()) {
      ++done[self];
      is_running[self] = false;
      return done[self] == rounds;
    }
    // Check whether a member is gone, as the waits of blocking callers do.
    if (status.is_busy() && world.fabric(rank).peers().state(Rank(victim)) == PeerState::kDead)
      is_over[self] = true;
    if (status.is_error()) {
      EXPECT_EQ(status.code(), Code::kPeerDead) << "seed " << seed << ": " << status.to_string();
      EXPECT_EQ(status.peer(), Rank(victim)) << "seed " << seed << ": " << status.to_string();
      is_over[self] = true;
    }
    return is_over[self];
  });
  EXPECT_TRUE(is_finished) << "seed " << seed;
}

inline Membership everybody(int size) {
  Membership all;
  for (int rank = 0; rank < size; ++rank) all.members.emplace_back(rank);
  return all;
}

}  // namespace dunlin::testing
