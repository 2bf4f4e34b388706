// Numbers of the sim transport, and why they are what they are.
#pragma once

#include <chrono>
#include <cstddef>

#include "runtime/clock.h"

namespace dunlin::transport::sim {

// What a link is like unless the options say otherwise: shared memory inside a host, one switch
// inside a rack, three between racks, 100 Gb/s NICs. Orders of magnitude, for a first run; whoever
// wants figures measures his fabric (dunlin-perf) and sets them.
inline constexpr Duration kHostLatency = std::chrono::nanoseconds(300);
inline constexpr double kHostBandwidth = 20e9;  // bytes per second
inline constexpr Duration kRackLatency = std::chrono::microseconds(2);
inline constexpr double kRackBandwidth = 12.5e9;
inline constexpr Duration kSpineLatency = std::chrono::microseconds(4);
inline constexpr double kSpineBandwidth = 12.5e9;

// Operations in flight on a lane before it refuses with kBusy: that of a verbs queue pair. Hostile
// runs set less.
inline constexpr std::size_t kQueueDepth = 256;

// Address space for phantom memory: 65,536 ranks with 16 buffers of 64 MiB each. Reserved without
// access, so it costs no memory; where the system allows less (a sanitizer, a limit), half of it is
// tried, and half of that, down to the second number.
inline constexpr std::size_t kMostPhantom = std::size_t{1} << 46;
inline constexpr std::size_t kLeastPhantom = std::size_t{1} << 32;
static_assert(kMostPhantom > kLeastPhantom);

// A piece of a put that lands by itself is numbered with 16 bits in its event.
inline constexpr int kMostPieces = 1000;

}  // namespace dunlin::transport::sim
