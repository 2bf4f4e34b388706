// How the group generator chooses groups: options, what a policy sees, and the two policies of
// Ripples / Prague. Pure functions of what they are given; any thread.
//
// The random policy (section 4.1): the worker that asks, and group_size - 1 others, all alike.
//
// The buffered policy: the same choice, but only where the worker's buffer is empty; else the first
// group in it serves (group buffer, section 5.1, without global division).
//
// The smart policy (section 5) divides all workers that have nothing to do at once:
//   - Candidates: the worker that asks (the initiator), and all others with empty buffers whose
//     counter is less than slowdown_threshold below the initiator's (slowdown filter, 5.3).
//   - Without inter_intra, or with candidates of one node only: they are divided at random into
//     groups (global division, 5.1).
//   - With inter_intra (5.2), two groups for each. First, a head worker of each node, chosen at
//     random, meets heads of other nodes, the others meet workers of their own node, but for one
//     that has nobody to meet at home: it goes along with the head. Then all candidates of each
//     node meet.
//
// Two rules of ours, where the paper leaves it open; options turn them off:
//   - intra_filter: as the second group is an iteration away, who is too far behind the fastest
//     candidate of its node is not in it, even if it is the initiator: it would hold up its node
//     for an iteration of its own.
//   - most_alone: when nobody else is a candidate, the initiator stays alone this time. After so
//     many times in a row it joins those with the shortest buffers, behind what they have to do, if
//     the filter lets any through. At once would cost more: it sets those two iterations apart from
//     all others, who then wait for them, or they for these.
//
// Dividing m workers gives groups of equal size up to one, none with a single worker: of at most
// group_size, but for a group of three where pairs don't come out even.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/partial/group.h"
#include "runtime/status.h"

namespace dunlin::collective {

enum class GroupPolicy : std::uint8_t { kRandom, kBuffered, kSmart };
inline constexpr GroupPolicy kGroupPolicies[] = {GroupPolicy::kRandom, GroupPolicy::kBuffered,
                                                 GroupPolicy::kSmart};
const char* to_string(GroupPolicy policy);

struct GroupOptions {
  GroupPolicy policy = GroupPolicy::kSmart;
  WorkerLayout layout;
  // 2..workers, 3 in the paper's experiments; ignored for a single worker.
  int group_size = 3;
  // Of the smart policy. The paper's C_thres, in iterations, at least 1. So far ahead may a fast
  // worker be of those that it is grouped with.
  std::uint64_t slowdown_threshold = 4;
  bool inter_intra = true;
  // Rules beyond the paper, above.
  bool intra_filter = true;
  std::uint32_t most_alone = 4;  // 0: never, unless the filter lets nobody through
  std::uint64_t seed = 1;

  bool operator==(const GroupOptions&) const = default;
};
// kInvalidArgument: says which one and why.
Status check(const GroupOptions& options);

// The same everywhere, in one word: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
class GroupRandom {
 public:
  explicit GroupRandom(std::uint64_t state) : state_(state) {}
  std::uint64_t next();
  // Uniform in 0..bound-1; bound at least 1.
  std::size_t below(std::size_t bound);
  template <typename T>
  void shuffle(std::span<T> values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  std::uint64_t state_;
};

// What a policy knows of a worker.
struct WorkerView {
  bool is_alive = true;
  std::size_t queued = 0;       // groups in its buffer
  std::uint64_t iteration = 0;  // its counter
  std::uint32_t alone = 0;      // times that it was left alone in a row
};

// Groups for `initiator`, which must be alive, in the order in which they are to be queued; the
// first one that has the initiator is the one that it asks for. Each sorted. Workers that are lost
// are in none; only the initiator can be in a group of one.
std::vector<std::vector<Rank>> choose_groups(const GroupOptions& options,
                                             std::span<const WorkerView> workers, Rank initiator,
                                             GroupRandom& random);

}  // namespace dunlin::collective
