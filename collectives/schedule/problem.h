// Problem: what a collective operation has to compute, independent of the algorithm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/status.h"

namespace dunlin::collective {

// P is the number of ranks, n is Problem::count, and in(r)[e] is element e of rank r's input.
enum class Collective : std::uint8_t {
  kAllReduce,      // in: n, out: n         out[e] = sum over r of in(r)[e]
  kReduce,         // in: n, out: n         the same on the root; other ranks' output is not written
  kBroadcast,      // in: n, out: n         out[e] = in(root)[e]
  kReduceScatter,  // in: P * n, out: n     out(r)[e] = sum over s of in(s)[r * n + e]
  kAllGather,      // in: n, out: P * n     out[r * n + e] = in(r)[e]
  kAllToAll,       // in: P * n, out: P * n out(r)[s * n + e] = in(s)[r * n + e]
  kBarrier,        // n = 0
};
inline constexpr Collective kAllCollectives[] = {Collective::kAllReduce, Collective::kReduce,
                                                 Collective::kBroadcast, Collective::kReduceScatter,
                                                 Collective::kAllGather, Collective::kAllToAll,
                                                 Collective::kBarrier};
const char* to_string(Collective collective);  // "all-reduce", ...
Result<Collective> parse_collective(std::string_view name);

struct Problem {
  Collective collective = Collective::kAllReduce;
  int size = 1;           // ranks
  std::size_t count = 0;  // n above, in elements
  int root = 0;           // kReduce, kBroadcast

  std::size_t input_count() const;  // elements of each rank's input
  std::size_t output_count() const;
  // True if the collective combines elements, false if it only moves them.
  bool reduces() const;
  bool is_rooted() const {
    return collective == Collective::kReduce || collective == Collective::kBroadcast;
  }
  // Offset of rank `rank`'s input in its output, or of its output in its input, when both share
  // memory. NCCL and MPI use the same convention. Not for kAllToAll, which cannot run in place.
  std::size_t in_place_offset(int rank) const;
};

}  // namespace dunlin::collective
