// NeighborCall: what one rank does with its neighbours once (neighbor_exchange.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "collectives/data_type.h"
#include "collectives/neighborhood.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::collective {

struct WeightedRank {
  Rank rank;
  double weight = 1;
};

struct NeighborCall {
  std::string_view name{};
  const void* input = nullptr;
  void* output = nullptr;  // of `count` elements: the input itself, or apart from it; of an average
  std::size_t count = 0;   // elements; each rank's own where data are gathered
  DataType type = DataType::kFloat32;
  // The same at both ends, of data that are gathered: a digest of what they are made of, say.
  std::uint32_t layout = 0;
  double self_weight = 1;
  std::vector<WeightedRank> sources{};  // a rank at most once; not this one
  std::vector<WeightedRank> destinations{};
};

// Whose the data are that come for a gather after it was given up.
enum class Missed {
  kDropped,     // nobody's: later ones match as if it had ended well
  kNextGather,  // the next one's of the name: as if it had never been started
};

// What a rank's calls have sent first, the data of small ones and the announcements of others.
struct NeighborTraffic {
  std::uint64_t messages = 0;
  std::uint64_t parts = 0;  // in them, one per call and destination; as many where none was fused
};

// Sources, destinations and weights of a call, as a node graph has them.
void set_neighbors(NeighborCall& call, const Neighborhood& neighborhood);

namespace neighbor {

// What can be told from rank `self` alone.
Status check(const NeighborCall& call, bool is_reduction, Rank self, int size);

}  // namespace neighbor
}  // namespace dunlin::collective
