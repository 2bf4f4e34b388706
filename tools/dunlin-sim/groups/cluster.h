// GroupCluster: workers that compute and synchronize in virtual time, on hosts with shared links.
// The methods of the heterogeneity experiments (Ripples / Prague, sections 7.3 and 7.4) have it in
// common.
//
// Links: each worker has a PCIe link and each host a NIC, both full duplex. A message between
// workers of a host uses the sender's link outward and the receiver's inward; between hosts it also
// uses both NICs. A ring all-reduce among k workers goes around by rank. All its edges have one
// rate; each carries 2 (k - 1) / k times the model, with 2 (k - 1) latencies.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/groups/group.h"
#include "runtime/clock.h"
#include "tools/dunlin-sim/groups/models.h"
#include "tools/dunlin-sim/network/fluid_network.h"
#include "transports/sim/options.h"

namespace dunlin::simulate {

// Makes a worker slow in the way of the paper: it sleeps `factor` times the usual computation in
// addition.
struct Slowdown {
  double factor = 0;
  bool is_random = false;  // the iteration of any worker, each with probability 1 / workers
};

struct GroupSetting {
  collective::WorkerLayout layout{4, 4};
  double model_bytes = 9.23e6;
  Duration compute = std::chrono::microseconds(6600);
  double compute_spread = 0.05;  // uniform: up to this share shorter or longer
  transport::sim::LinkClass between{std::chrono::microseconds(2), 6.8e9};
  transport::sim::LinkClass within{std::chrono::microseconds(1), 15.75e9};
  // The time of a message to or from the group generator.
  Duration message = std::chrono::microseconds(50);
  int group_size = 3;
  std::uint64_t slowdown_threshold = 4;
  // Rules of collective::GroupOptions that the paper does not have.
  bool intra_filter = true;
  std::uint32_t most_alone = 4;
  // Iterations between two synchronizations: for local SGD, and for the other methods that average
  // models.
  std::uint64_t local_section_length = 4;
  std::uint64_t section_length = 1;
  int slow_worker = 5;
  std::uint64_t iterations = 300;  // of each worker, on average
  std::uint64_t seed = 1;
};

class GroupCluster {
 public:
  using Action = FluidNetwork::Action;

  GroupCluster(const GroupSetting& setting, const Slowdown& slowdown, GroupModels models = {});

  // The method: it is called for a worker that has computed, and must call finish() once for each.
  std::function<void(Rank)> computed;

  const GroupSetting& setting() const { return setting_; }
  int workers() const { return setting_.layout.workers(); }
  FluidNetwork& network() { return network_; }
  GroupModels& models() { return models_; }
  std::uint64_t iteration(Rank rank) const { return iterations_[rank.index()]; }

  void all_reduce(const std::vector<Rank>& ranks, Action done);
  // One transfer of the model.
  void send(Rank from, Rank to, Action done);
  // Transfers to and from the memory of host 0.
  void push(Rank from, Action done);
  void pull(Rank to, Action done);
  // Ends the iteration of the worker, which begins the next one.
  void finish(Rank rank);

  // start() lets all workers begin. step() advances to the next event; it returns false when there
  // is none, because the method has come to a halt.
  void start();
  bool step() { return network_.step(); }
  std::uint64_t finished() const { return finished_; }  // iterations, of all workers

  // Does both until the workers have done their iterations, some of them more and some fewer.
  // Returns the iterations of all workers per second, without the first tenth; 0 when the method
  // came to a halt; infinity when it took no time.
  double run();

 private:
  void begin(Rank rank);
  double compute_seconds(Rank rank) const;
  void add_path(Rank from, Rank to, std::vector<FluidNetwork::Link>& links) const;
  double latency(int first_host, int last_host) const;
  void transfer(double latency, double bytes, std::vector<FluidNetwork::Link> links, Action done);

  GroupSetting setting_;
  Slowdown slowdown_;
  FluidNetwork network_;
  GroupModels models_;
  // Indexed by worker, and by host.
  std::vector<FluidNetwork::Link> up_, down_, nic_out_, nic_in_;
  std::vector<std::uint64_t> iterations_;
  std::uint64_t finished_ = 0;
  double warm_at_ = 0;
};

}  // namespace dunlin::simulate
