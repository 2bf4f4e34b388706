#include "transports/sim/port_occupancy.h"

namespace dunlin::transport::sim {
namespace {

double nanoseconds_per_byte(double bandwidth) {
  return bandwidth == 0 ? 0 : 1e9 / bandwidth;
}

}  // namespace

PortOccupancy::PortOccupancy(const Options& options) : options_(options) {
  for (const Route route : {Route::kHost, Route::kRack, Route::kSpine}) {
    per_byte_[static_cast<std::size_t>(route)] =
        nanoseconds_per_byte(options.link(route).bandwidth);
  }
  const auto ranks = static_cast<std::size_t>(options.ranks);
  const Rank last(options.ranks - 1);
  host_egress_.resize(ranks);
  host_ingress_.resize(ranks);
  nic_egress_.resize(nic(last) + 1);
  nic_ingress_.resize(nic(last) + 1);
  if (options.oversubscription == 0 || options.hosts_per_rack == 0) return;
  const int nics = options.hosts_per_rack * (options.shares_nic ? 1 : options.ranks_per_host);
  uplink_per_byte_ =
      nanoseconds_per_byte(options.spine.bandwidth) * options.oversubscription / nics;
  uplinks_.resize(rack(last) + 1);
  downlinks_.resize(rack(last) + 1);
}

}  // namespace dunlin::transport::sim
