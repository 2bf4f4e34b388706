// Relief: moves chunks that have arrived out of their slots, if they occupy those slots while a
// call needs data that can only arrive after them. Owner thread only.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "collectives/neighbor/operation.h"
#include "collectives/neighbor/ring.h"
#include "runtime/clock.h"

namespace dunlin::collective::neighbor {

// Calls that are not over, in the order of their start, with their keys.
using ActiveCalls = std::vector<std::pair<std::uint64_t, NeighborOperation*>>;

class Relief {
 public:
  void make_room(Pair& pair, const ActiveCalls& calls, const Clock& clock);

 private:
  std::uint64_t stuck_at_ = 0;  // the chunk that has been the oldest since stuck_since_
  TimePoint stuck_since_{};
};

}  // namespace dunlin::collective::neighbor
