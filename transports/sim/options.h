// Options: the properties of a simulated network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/clock.h"
#include "runtime/rank.h"
#include "runtime/status.h"
#include "transports/sim/constants.h"

namespace dunlin::transport::sim {

// The route between two ranks: inside a host, between hosts of a rack, or between racks.
enum class Route : std::uint8_t { kHost, kRack, kSpine };
inline constexpr std::size_t kRoutes = 3;
const char* to_string(Route route);

struct LinkClass {
  Duration latency{};    // until the first byte arrives
  double bandwidth = 0;  // bytes per second; 0: unlimited
};

// A random delay that is added to the latency of each message.
struct Jitter {
  enum class Kind : std::uint8_t { kNone, kUniform, kExponential };
  Kind kind = Kind::kNone;
  Duration scale{};  // kUniform: the largest delay; kExponential: the mean delay
};

// On a hostile network, everything happens that the contract of Lane permits. Puts land in pieces,
// late and in any order. Source buffers are read only when a piece lands, so that reuse before
// completion shows. Lanes overtake each other. Posting returns kBusy at random. Ports are never
// occupied then, but the latency and the bandwidth of the link class still count.
struct Hostility {
  Duration longest_delay = std::chrono::microseconds(50);
  int pieces = 4;        // a put lands in up to this many pieces
  double refusal = 0.2;  // the share of posts that return kBusy
};

struct Straggler {
  Rank rank;
  double factor = 1;  // its computations take this many times longer
};

struct Options {
  int ranks = 2;
  std::uint64_t seed = 1;  // for all randomness: the same seed gives the same run

  // Rank r is on host r / ranks_per_host, host h in rack h / hosts_per_rack.
  int ranks_per_host = 1;
  int hosts_per_rack = 0;  // 0: one rack holds all
  LinkClass host{kHostLatency, kHostBandwidth};
  LinkClass rack{kRackLatency, kRackBandwidth};
  LinkClass spine{kSpineLatency, kSpineBandwidth};
  // Whether the ranks of a host share one NIC to other hosts, or have one each.
  bool shares_nic = false;
  // The bandwidth of a rack's NICs together divided by that of its uplink. 0: uplinks never limit.
  double oversubscription = 0;

  // The time for which a message occupies its sender's egress before its first byte leaves.
  Duration overhead{};
  Jitter jitter;
  std::size_t queue_depth = kQueueDepth;
  // Whether ranks have one another's memory mapped, as over shared memory: stores take effect at
  // once, and notifications travel. Phantom memory cannot be mapped.
  bool maps_memory = false;
  // The time from the death of a rank until the others know of it.
  Duration loss_notice{};
  std::vector<Straggler> stragglers;
  std::optional<Hostility> hostility;

  const LinkClass& link(Route route) const {
    return route == Route::kHost ? host : route == Route::kRack ? rack : spine;
  }
  int host_of(Rank rank) const { return rank.value() / ranks_per_host; }
  int rack_of(Rank rank) const { return hosts_per_rack == 0 ? 0 : host_of(rank) / hosts_per_rack; }
  Route route(Rank from, Rank to) const {
    if (host_of(from) == host_of(to)) return Route::kHost;
    return rack_of(from) == rack_of(to) ? Route::kRack : Route::kSpine;
  }
  // kInvalidArgument names the first invalid value.
  Status check() const;
};

}  // namespace dunlin::transport::sim
