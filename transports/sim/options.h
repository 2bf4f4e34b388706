// Options: what a simulated network is like.
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

// The way between two ranks: inside a host, between hosts of a rack, between racks.
enum class Route : std::uint8_t { kHost, kRack, kSpine };
inline constexpr std::size_t kRoutes = 3;
const char* to_string(Route route);

struct LinkClass {
  Duration latency{};    // until the first byte is there
  double bandwidth = 0;  // bytes per second; 0: without limit
};

// Added to the latency of each message.
struct Jitter {
  enum class Kind : std::uint8_t { kNone, kUniform, kExponential };
  Kind kind = Kind::kNone;
  Duration scale{};  // kUniform: from nothing to this; kExponential: the mean
};

// Everything that the Lane contract leaves open happens: puts land in pieces, late and in any
// order; source buffers are read only when a piece lands, so that reuse before completion shows;
// lanes overtake one another; posting is refused at random. Nobody waits for a wire then; the
// latency and the bandwidth of the link class still count.
struct Hostility {
  Duration longest_delay = std::chrono::microseconds(50);
  int pieces = 4;        // a put lands in up to this many
  double refusal = 0.2;  // share of posts that are refused with kBusy
};

struct Straggler {
  Rank rank;
  double factor = 1;  // its computations take this many times longer
};

struct Options {
  int ranks = 2;
  std::uint64_t seed = 1;  // of all randomness: the same seed gives the same run

  // Rank r is on host r / ranks_per_host, host h in rack h / hosts_per_rack.
  int ranks_per_host = 1;
  int hosts_per_rack = 0;  // 0: one rack holds all
  LinkClass host{kHostLatency, kHostBandwidth};
  LinkClass rack{kRackLatency, kRackBandwidth};
  LinkClass spine{kSpineLatency, kSpineBandwidth};
  // Between hosts: whether the ranks of a host share one NIC, or have one each.
  bool shares_nic = false;
  // How many times less than its NICs together the uplink of a rack carries; 0: it never limits.
  double oversubscription = 0;

  // Time for which a message keeps its sender's egress busy before its first byte leaves.
  Duration overhead{};
  Jitter jitter;
  std::size_t queue_depth = kQueueDepth;
  // From the loss of a rank until the others know.
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
  // kInvalidArgument names the first value that can't work.
  Status check() const;
};

}  // namespace dunlin::transport::sim
