// PortOccupancy: until when each port of the simulated network is occupied by messages.
//
// A message occupies each port on its route for as long as its bytes take there. Ports serve
// messages in the order of arrival, and pass on the first byte of a message as soon as they begin
// to serve it (cut-through). Between hosts, the ports are the egress and ingress of the NICs, and
// the uplink and downlink of a rack that is oversubscribed. Inside a host, each rank has its own
// egress and ingress. Control lanes have a queue of their own at every port: their messages take
// their share of the bandwidth, but do not wait behind data.
#pragma once

#include <vector>

#include "transports/sim/options.h"
#include "transports/transport.h"

namespace dunlin::transport::sim {

class PortOccupancy {
 public:
  explicit PortOccupancy(const Options& options);

  Duration transfer(Route route, std::size_t bytes) const {
    return take(bytes, per_byte_[static_cast<std::size_t>(route)]);
  }
  // Occupies the sender's egress. Returns the time when the first byte has left.
  TimePoint leave(TimePoint now, Rank from, Route route, LaneKind kind, std::size_t bytes) {
    const Duration busy = options_.overhead + transfer(route, bytes);
    return egress(from, route).occupy(now, busy, kind) + options_.overhead;
  }
  // The first byte is at the receiver's ingress now. Returns the time when the last one is.
  TimePoint arrive(TimePoint now, Rank to, Route route, LaneKind kind, std::size_t bytes) {
    const Duration busy = transfer(route, bytes);
    const TimePoint last = ingress(to, route).occupy(now, busy, kind) + busy;
    // The uplink of a rack may be slower than one NIC.
    return has_uplinks(route) ? std::max(last, now + take(bytes, uplink_per_byte_)) : last;
  }
  // Whether messages on this route pass uplinks that may limit them.
  bool has_uplinks(Route route) const { return route == Route::kSpine && !uplinks_.empty(); }
  // The first byte is at the uplink (downlink) of the rank's rack now. Returns the time when it is
  // passed on.
  TimePoint go_up(TimePoint now, Rank from, LaneKind kind, std::size_t bytes) {
    return uplinks_[rack(from)].occupy(now, take(bytes, uplink_per_byte_), kind);
  }
  TimePoint go_down(TimePoint now, Rank to, LaneKind kind, std::size_t bytes) {
    return downlinks_[rack(to)].occupy(now, take(bytes, uplink_per_byte_), kind);
  }

 private:
  struct Port {
    TimePoint data_free{};
    TimePoint control_free{};

    // Occupies the port for `busy`, as soon as possible. Returns the time when that begins.
    TimePoint occupy(TimePoint now, Duration busy, LaneKind kind) {
      TimePoint& is_free = kind == LaneKind::kData ? data_free : control_free;
      const TimePoint begin = std::max(now, is_free);
      is_free = begin + busy;
      if (kind == LaneKind::kControl) data_free = std::max(data_free, begin) + busy;
      return begin;
    }
  };
  static Duration take(std::size_t bytes, double per_byte) {
    return Duration(static_cast<std::int64_t>(static_cast<double>(bytes) * per_byte + 0.5));
  }
  std::size_t nic(Rank rank) const {
    return options_.shares_nic ? static_cast<std::size_t>(options_.host_of(rank)) : rank.index();
  }
  std::size_t rack(Rank rank) const { return static_cast<std::size_t>(options_.rack_of(rank)); }
  Port& egress(Rank rank, Route route) {
    return route == Route::kHost ? host_egress_[rank.index()] : nic_egress_[nic(rank)];
  }
  Port& ingress(Rank rank, Route route) {
    return route == Route::kHost ? host_ingress_[rank.index()] : nic_ingress_[nic(rank)];
  }

  const Options& options_;
  double per_byte_[kRoutes];  // nanoseconds
  double uplink_per_byte_ = 0;
  std::vector<Port> host_egress_;
  std::vector<Port> host_ingress_;
  std::vector<Port> nic_egress_;
  std::vector<Port> nic_ingress_;
  std::vector<Port> uplinks_;  // empty if they never limit
  std::vector<Port> downlinks_;
};

}  // namespace dunlin::transport::sim
