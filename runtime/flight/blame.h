// Blame: finds the ranks that others really wait for.
//
// In a ring, rank 1 waits for rank 0, which itself waits for rank 7, which is slow: rank 1 waits
// for rank 7. So a wait for a rank that itself waited for the part f of its time is passed on to
// those that it waited for, in the part f and in proportion to their times; the rest stays. A wait
// that comes back to the rank that waits is dropped. Waits that go around among equals fade out,
// since f < 1. Only the sums are known, not which wait caused which.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/clock.h"
#include "runtime/rank.h"

namespace dunlin::flight {

struct DirectWait {
  Rank peer;
  Duration waited{};
};

// What one rank did in a period.
struct RankPeriod {
  Rank rank;
  Duration elapsed{};
  std::vector<DirectWait> waits;
};

// The time that `waiter` lost because of `culprit`.
struct Blame {
  Rank waiter;
  Rank culprit;
  Duration lost{};
};

// Returns each pair that lost at least 1 % of the waiter's period. The waits of ranks that are not
// listed, such as those of other hosts, are not known: what is passed to such a rank stays there.
std::vector<Blame> blame(const std::vector<RankPeriod>& ranks);

}  // namespace dunlin::flight
