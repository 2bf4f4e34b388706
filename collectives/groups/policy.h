// How the group generator chooses groups: the options, what a policy knows of the workers, and the
// policies of Ripples / Prague. Pure functions of their arguments; any thread.
//
// The random policy (section 4.1): the worker that asks, and group_size - 1 others, drawn
// uniformly.
//
// The buffered policy: the same choice, but only if the worker's buffer is empty. Otherwise the
// first group in the buffer is used (group buffer, section 5.1, without global division).
//
// The smart policy (section 5) makes groups of all idle workers at once:
//   - The candidates are the worker that asks (the initiator), and all others with empty buffers
//     whose iteration counter is less than slowdown_threshold below the initiator's (slowdown
//     filter, 5.3).
//   - Without inter_intra, or if all candidates are on one host, they are divided at random into
//     groups (global division, 5.1).
//   - With inter_intra (5.2), each candidate is put into two groups. For the first one, a head
//     worker of each host, chosen at random, meets heads of other hosts, and the other candidates
//     meet candidates of their own host. A single candidate that is left on a host joins the heads'
//     division along with its head. For the second one, all candidates of each host meet.
//
// Two rules are ours, where the paper leaves a question open. Options turn them off:
//   - intra_filter: A candidate that is too far behind the fastest candidate of its host is not in
//     the second group, even if it is the initiator. That group is an iteration away, and the host
//     would have to wait for it for an iteration of its own.
//   - most_alone: If there is no other candidate, the initiator stays alone this time. After so
//     many times in a row it joins the workers with the shortest buffers, behind their earlier
//     groups, if the filter lets any through. To do so at once would cost more: the initiator and
//     these workers would get two iterations apart from all others, and one side would wait for the
//     other.
//
// Dividing m workers gives groups whose sizes differ by at most one, and none of a single worker.
// They have at most group_size workers; with group_size 2 and odd m, one group has three.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/groups/group.h"
#include "runtime/status.h"

namespace dunlin::collective {

enum class GroupPolicy : std::uint8_t { kRandom, kBuffered, kSmart };
inline constexpr GroupPolicy kGroupPolicies[] = {GroupPolicy::kRandom, GroupPolicy::kBuffered,
                                                 GroupPolicy::kSmart};
const char* to_string(GroupPolicy policy);

struct GroupOptions {
  GroupPolicy policy = GroupPolicy::kSmart;
  WorkerLayout layout;
  // 2..workers; the paper's experiments use 3. Ignored for a single worker.
  int group_size = 3;
  // The paper's C_thres, for the smart policy, in iterations, at least 1: how far a worker may be
  // ahead of those that it is grouped with.
  std::uint64_t slowdown_threshold = 4;
  bool inter_intra = true;
  // The rules beyond the paper that are described above.
  bool intra_filter = true;
  std::uint32_t most_alone = 4;  // 0: alone only if the filter lets no other worker through
  std::uint64_t seed = 1;

  bool operator==(const GroupOptions&) const = default;
};
// kInvalidArgument says which option is wrong, and why.
Status check(const GroupOptions& options);

// A random generator with the same results everywhere and a state of one word: SplitMix64 (Steele,
// Lea, Flood, OOPSLA 2014).
class GroupRandom {
 public:
  explicit GroupRandom(std::uint64_t state) : state_(state) {}
  std::uint64_t next();
  // Uniform in 0..bound-1. `bound` is at least 1.
  std::size_t below(std::size_t bound);
  template <typename T>
  void shuffle(std::span<T> values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  std::uint64_t state_;
};

// What a policy knows about a worker.
struct WorkerView {
  bool is_alive = true;
  std::size_t queued = 0;       // groups in its buffer
  std::uint64_t iteration = 0;  // its iteration counter
  std::uint32_t alone = 0;      // how often in a row it was left alone
};

// Groups for `initiator`, which must be alive, in the order in which they are queued. The first
// group that has the initiator is the answer to its ask. Each group is sorted. Workers that are
// gone are in no group. Only the initiator can be in a group of one.
std::vector<std::vector<Rank>> choose_groups(const GroupOptions& options,
                                             std::span<const WorkerView> workers, Rank initiator,
                                             GroupRandom& random);

}  // namespace dunlin::collective
