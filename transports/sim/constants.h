// The numbers of the sim transport, and the reason for each.
#pragma once

#include <chrono>
#include <cstddef>

#include "runtime/clock.h"

namespace dunlin::transport::sim {

// The defaults of links: shared memory inside a host, one switch inside a rack, three switches
// between racks, and NICs of 100 Gb/s. They are orders of magnitude for a first run. For figures,
// measure your fabric with dunlin-perf and set the options.
inline constexpr Duration kHostLatency = std::chrono::nanoseconds(300);
inline constexpr double kHostBandwidth = 20e9;  // bytes per second
inline constexpr Duration kRackLatency = std::chrono::microseconds(2);
inline constexpr double kRackBandwidth = 12.5e9;
inline constexpr Duration kSpineLatency = std::chrono::microseconds(4);
inline constexpr double kSpineBandwidth = 12.5e9;

// A lane with this many operations in progress returns kBusy, like a queue pair of verbs. Hostile
// runs use fewer.
inline constexpr std::size_t kQueueDepth = 256;

// The address space for phantom memory, enough for 65,536 ranks with 16 buffers of 64 MiB each. It
// is reserved without access, so it costs no memory. If the system allows less, because of a
// sanitizer or a limit, the size is halved repeatedly, down to the second number.
inline constexpr std::size_t kMostPhantom = std::size_t{1} << 46;
inline constexpr std::size_t kLeastPhantom = std::size_t{1} << 32;
static_assert(kMostPhantom > kLeastPhantom);

// The most pieces that a put may land in. An event has 16 bits for the number of a piece.
inline constexpr int kMostPieces = 1000;

}  // namespace dunlin::transport::sim
