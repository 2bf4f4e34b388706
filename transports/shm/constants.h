// Numbers of the shm transport, and why they are what they are.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dunlin::transport::shm {

// First word of a segment: "DUNLSHM" and the layout's version. Processes of different builds that
// disagree about the layout refuse one another.
inline constexpr std::uint64_t kMagic = 0x01'4d'48'53'4c'4e'55'44;

// Regions that one process may have registered at a time. An entry costs 8 bytes; a program
// registers a handful. Beyond it, registration reports kResourceExhausted.
inline constexpr std::size_t kMaxRegions = 4096;

}  // namespace dunlin::transport::shm
