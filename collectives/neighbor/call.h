// NeighborCall: one call of a rank with its neighbors (neighbor_exchange.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "collectives/kernels/data_type.h"
#include "collectives/stochastic/neighborhood.h"
#include "runtime/gpu/driver.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::collective {

struct WeightedRank {
  Rank rank;
  double weight = 1;
};

// What an average does about neighbors that are dead, or that have left the job. Data that such a
// source has sent count where they have arrived.
enum class OnDeath : std::uint8_t {
  kFail,  // it fails with kPeerDead
  // It goes on. This rank's own data take the place of a source's, with the source's weight. Use it
  // if the weights of the sources and self_weight add up to 1 (pull).
  kOwnData,
  // It goes on without the data of such sources. The weight of a destination that was dead when the
  // call was started is added to self_weight. Use it if the weights of the destinations and
  // self_weight add up to 1 (push).
  kOwnShare,
};

struct NeighborCall {
  std::string_view name{};
  const void* input = nullptr;
  void* output = nullptr;  // of an average: `count` elements; the input itself, or apart from it
  std::size_t count = 0;   // elements; in a gather each rank has its own count
  DataType type = DataType::kFloat32;
  // This number has to be the same at both ends. Callers that gather put a digest of the data's
  // layout here.
  std::uint32_t layout = 0;
  double self_weight = 1;
  std::vector<WeightedRank> sources{};  // each rank at most once; not this rank
  std::vector<WeightedRank> destinations{};
  OnDeath on_death = OnDeath::kFail;  // of averages; a gather always fails
  // Recorded events of an average on GPU memory. The call's GPU work runs after the work before
  // these events, and so does the work of other calls that has not begun when this one starts.
  // Null: the memory is ready. Only start() uses the events.
  GpuEvent* input_ready = nullptr;
  GpuEvent* output_ready = nullptr;
};

// What becomes of data that arrive after the gather that they were for was canceled.
enum class Missed {
  kDropped,     // none: later gathers match as if the canceled one had succeeded
  kNextGather,  // the next one of the name, as if the canceled one had not been started
};

// Counts the first messages of a rank's calls: the data of small calls, the announcements of
// others.
struct NeighborTraffic {
  std::uint64_t messages = 0;
  std::uint64_t parts = 0;  // parts in them, one per call and destination; more if calls were fused
};

// Sets sources, destinations and weights to those of a node graph.
void set_neighbors(NeighborCall& call, const Neighborhood& neighborhood);

namespace neighbor {

// Sorts ranks by their distance from rank `self`, so that ranks with many destinations start at
// different ones.
std::vector<WeightedRank> clockwise(std::vector<WeightedRank> ranks, Rank self, int size);

// Checks what rank `self` can check alone.
Status check(const NeighborCall& call, bool is_reduction, Rank self, int size);

}  // namespace neighbor
}  // namespace dunlin::collective
