// GroupCluster: workers that compute and synchronize, on nodes whose links are shared, in virtual
// time: what the methods of the heterogeneity experiments (Ripples / Prague, sections 7.3 and 7.4)
// have in common.
//
// Links: each worker has a PCIe link, each node a NIC, both full duplex. A message between workers
// of a node takes the sender's link out and the receiver's in; between nodes, both NICs as well. A
// ring all-reduce among k workers goes around by rank, all its edges at one rate, 2 (k - 1) / k
// times the model over each, and 2 (k - 1) latencies.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/partial/group.h"
#include "runtime/clock.h"
#include "tools/dunlin-sim/fluid_network.h"
#include "tools/dunlin-sim/group_models.h"
#include "transports/sim/options.h"

namespace dunlin::simulate {

// Which worker is slow, by the paper's means: a sleep of `factor` times the usual computation is
// added to it.
struct Slowdown {
  double factor = 0;
  bool is_random = false;  // any worker's iteration, each with probability 1 / workers
};

struct GroupSetting {
  collective::WorkerLayout layout{4, 4};
  double model_bytes = 9.23e6;
  Duration compute = std::chrono::microseconds(6600);
  double compute_spread = 0.05;  // uniform, around it, this share to either side
  transport::sim::LinkClass between{std::chrono::microseconds(2), 6.8e9};
  transport::sim::LinkClass within{std::chrono::microseconds(1), 15.75e9};
  // To the group generator, or from it.
  Duration message = std::chrono::microseconds(50);
  int group_size = 3;
  std::uint64_t slowdown_threshold = 4;
  // Rules beyond the paper, of collective::GroupOptions.
  bool intra_filter = true;
  std::uint32_t most_alone = 4;
  // Iterations from one synchronization to the next: of local SGD, and of the other methods that
  // average models.
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

  // The method: what a worker does that has computed. It calls finish() once for each.
  std::function<void(Rank)> computed;

  const GroupSetting& setting() const { return setting_; }
  int workers() const { return setting_.layout.workers(); }
  FluidNetwork& network() { return network_; }
  GroupModels& models() { return models_; }
  std::uint64_t iteration(Rank rank) const { return iterations_[rank.index()]; }

  void all_reduce(const std::vector<Rank>& ranks, Action done);
  // The model, once.
  void send(Rank from, Rank to, Action done);
  // To and from the memory of node 0.
  void push(Rank from, Action done);
  void pull(Rank to, Action done);
  // The worker's iteration is over: it begins the next.
  void finish(Rank rank);

  // All workers begin. Then step() goes on to the next event; false: there is none, the method came
  // to a halt.
  void start();
  bool step() { return network_.step(); }
  std::uint64_t finished() const { return finished_; }  // iterations, of all workers

  // Both, until the workers have done their iterations, some more, some less. Iterations of all
  // workers per second, the first tenth left out; 0: the method came to a halt; infinite: it took
  // no time.
  double run();

 private:
  void begin(Rank rank);
  double compute_seconds(Rank rank) const;
  void add_path(Rank from, Rank to, std::vector<FluidNetwork::Link>& links) const;
  double latency(int first_node, int last_node) const;
  void transfer(double latency, double bytes, std::vector<FluidNetwork::Link> links, Action done);

  GroupSetting setting_;
  Slowdown slowdown_;
  FluidNetwork network_;
  GroupModels models_;
  // By worker, and by node.
  std::vector<FluidNetwork::Link> up_, down_, nic_out_, nic_in_;
  std::vector<std::uint64_t> iterations_;
  std::uint64_t finished_ = 0;
  double warm_at_ = 0;
};

}  // namespace dunlin::simulate
