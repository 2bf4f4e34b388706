#include "collectives/neighbor/relief.h"

#include <chrono>

namespace dunlin::collective::neighbor {
namespace {

// When no chunk's slot was released for so long, the chunks in them may wait for data that come
// behind them, and are moved out. That is rare, as sources send in the order in which they were
// asked.
constexpr Duration kStuckTime = std::chrono::microseconds(200);

void move_oldest(Ring& ring, const ActiveCalls& calls) {
  // The slot becomes free once all calls have moved their parts out of it.
  const std::uint64_t oldest = ring.oldest();
  for (const auto& [key, operation] : calls) {
    operation->make_room(ring);
    if (ring.oldest() != oldest) return;
  }
}

// Chunks can wait in their slots as long as no other call needs chunks of the neighbor. That
// matters for memory of a GPU, which takes long to get.
bool is_move_useful(const Pair& pair, const ActiveCalls& calls) {
  int needed_by = 0;
  for (const auto& [key, operation] : calls) {
    if (operation->gpu == nullptr) return true;
    for (const Intake& intake : operation->intakes)
      needed_by += intake.pair == &pair && intake.taken < operation->bytes ? 1 : 0;
  }
  return needed_by > 1;
}

}  // namespace

void Relief::make_room(Pair& pair, const ActiveCalls& calls, const Clock& clock) {
  if (pair.messages->is_full()) move_oldest(*pair.messages, calls);
  Ring& chunks = *pair.chunks;
  if (!chunks.is_full()) {
    stuck_at_ = 0;
  } else if (const TimePoint now = clock.now(); stuck_at_ != chunks.oldest()) {
    stuck_at_ = chunks.oldest();
    stuck_since_ = now;
  } else if (now - stuck_since_ >= kStuckTime && is_move_useful(pair, calls)) {
    for (std::size_t slot = 0; slot < chunks.depth(); ++slot) move_oldest(chunks, calls);
  }
}

}  // namespace dunlin::collective::neighbor
