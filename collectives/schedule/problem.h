// What a collective operation has to achieve, whatever algorithm does it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/status.h"

namespace dunlin::collective {

// With P ranks and n = Problem::count; element e of rank r's input is in(r)[e].
enum class Collective : std::uint8_t {
  kAllReduce,      // in: n, out: n         out[e] = sum over r of in(r)[e]
  kReduce,         // in: n, out: n         the same at the root; other ranks' output is untouched
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
  // Combines elements, as opposed to moving them only.
  bool reduces() const;
  bool is_rooted() const {
    return collective == Collective::kReduce || collective == Collective::kBroadcast;
  }
  // Where rank `rank`'s input lies in its output (or its output in its input) when both share
  // memory: NCCL's convention, also MPI's. kAllToAll has none.
  std::size_t in_place_offset(int rank) const;
};

}  // namespace dunlin::collective
