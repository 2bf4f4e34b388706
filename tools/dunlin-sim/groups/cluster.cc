#include "tools/dunlin-sim/groups/cluster.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/groups/policy.h"

namespace dunlin::simulate {

GroupCluster::GroupCluster(const GroupSetting& setting, const Slowdown& slowdown,
                           GroupModels models)
    : setting_(setting), slowdown_(slowdown), models_(std::move(models)) {
  const auto add = [&](std::vector<FluidNetwork::Link>& links, int count, double bandwidth) {
    for (int i = 0; i < count; ++i) links.push_back(network_.add_link(bandwidth));
  };
  add(up_, workers(), setting.within.bandwidth);
  add(down_, workers(), setting.within.bandwidth);
  add(nic_out_, setting.layout.hosts, setting.between.bandwidth);
  add(nic_in_, setting.layout.hosts, setting.between.bandwidth);
  iterations_.resize(static_cast<std::size_t>(workers()));
}

// The value is drawn by worker and iteration, so it is the same for all methods.
double GroupCluster::compute_seconds(Rank rank) const {
  collective::GroupRandom random(setting_.seed);
  random = collective::GroupRandom(random.next() + rank.index());
  random = collective::GroupRandom(random.next() + iteration(rank));
  const auto uniform = [&] { return static_cast<double>(random.next() >> 11) * 0x1p-53; };
  const double usual = to_seconds(setting_.compute);
  double seconds = usual * (1 + setting_.compute_spread * (2 * uniform() - 1));
  const bool is_slow =
      slowdown_.is_random ? uniform() * workers() < 1 : rank.value() == setting_.slow_worker;
  if (is_slow) seconds += slowdown_.factor * usual;
  return seconds;
}

void GroupCluster::begin(Rank rank) {
  models_.compute(rank, iteration(rank));
  network_.after(compute_seconds(rank), [this, rank] { computed(rank); });
}

void GroupCluster::finish(Rank rank) {
  ++iterations_[rank.index()];
  if (++finished_ == setting_.iterations * static_cast<std::uint64_t>(workers()) / 10)
    warm_at_ = network_.now();
  begin(rank);
}

void GroupCluster::start() {
  for (int i = 0; i < workers(); ++i) begin(Rank(i));
}

double GroupCluster::run() {
  start();
  const std::uint64_t all = setting_.iterations * static_cast<std::uint64_t>(workers());
  while (finished_ < all) {
    if (!step()) return 0;
  }
  const double seconds = network_.now() - warm_at_;
  if (seconds <= 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(all - all / 10) / seconds;
}

double GroupCluster::latency(int first_host, int last_host) const {
  return to_seconds(first_host == last_host ? setting_.within.latency : setting_.between.latency);
}

void GroupCluster::add_path(Rank from, Rank to, std::vector<FluidNetwork::Link>& links) const {
  const int out = setting_.layout.host_of(from);
  const int in = setting_.layout.host_of(to);
  links.push_back(up_[from.index()]);
  links.push_back(down_[to.index()]);
  if (out == in) return;
  links.push_back(nic_out_[static_cast<std::size_t>(out)]);
  links.push_back(nic_in_[static_cast<std::size_t>(in)]);
}

void GroupCluster::transfer(double latency, double bytes, std::vector<FluidNetwork::Link> links,
                            Action done) {
  network_.after(latency, [this, bytes, links = std::move(links), done = std::move(done)] {
    network_.transfer(bytes, links, done);
  });
}

void GroupCluster::all_reduce(const std::vector<Rank>& ranks, Action done) {
  if (ranks.size() < 2) return network_.after(0, std::move(done));
  std::vector<FluidNetwork::Link> links;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    add_path(ranks[i], ranks[(i + 1) % ranks.size()], links);
  const double steps = 2 * static_cast<double>(ranks.size() - 1);
  const int first = setting_.layout.host_of(ranks.front());
  const int last = setting_.layout.host_of(ranks.back());
  transfer(steps * latency(first, last),
           setting_.model_bytes * steps / static_cast<double>(ranks.size()), std::move(links),
           std::move(done));
}

void GroupCluster::send(Rank from, Rank to, Action done) {
  std::vector<FluidNetwork::Link> links;
  add_path(from, to, links);
  transfer(latency(setting_.layout.host_of(from), setting_.layout.host_of(to)),
           setting_.model_bytes, std::move(links), std::move(done));
}

void GroupCluster::push(Rank from, Action done) {
  const int host = setting_.layout.host_of(from);
  std::vector<FluidNetwork::Link> links{up_[from.index()]};
  if (host != 0) {
    links.push_back(nic_out_[static_cast<std::size_t>(host)]);
    links.push_back(nic_in_[0]);
  }
  transfer(latency(host, 0), setting_.model_bytes, std::move(links), std::move(done));
}

void GroupCluster::pull(Rank to, Action done) {
  const int host = setting_.layout.host_of(to);
  std::vector<FluidNetwork::Link> links{down_[to.index()]};
  if (host != 0) {
    links.push_back(nic_out_[0]);
    links.push_back(nic_in_[static_cast<std::size_t>(host)]);
  }
  transfer(latency(0, host), setting_.model_bytes, std::move(links), std::move(done));
}

}  // namespace dunlin::simulate
