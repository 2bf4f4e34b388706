// JobView: what the flight records of a job say about it in a period: how much each rank waits for
// which others, and which rank holds up the others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/flight/blame.h"
#include "runtime/flight/reader.h"

namespace dunlin::flight {

// A rank in the period.
struct RankView {
  Snapshot now;
  Duration period{};
  double wait_share = 0;          // of the period
  std::vector<DirectWait> waits;  // in the period, the longest first
  std::uint64_t operations = 0;   // completed in the period
  std::uint64_t steps = 0;
  std::vector<TransportUse> bytes;  // in the period
  bool is_active = false;           // it did something, or waited for others
  // Time of a step without its waits. Over the whole time if the period has no complete step.
  std::optional<Duration> own_step;
};

enum class Trouble : std::uint8_t {
  kSlow,     // its counters advance
  kStuck,    // they don't, and it waits for nobody
  kStopped,  // by a signal
  kDead,     // its process has ended, but it has not left the job
};
const char* to_string(Trouble trouble);

// A rank that holds up others.
struct Straggler {
  Rank rank;
  Trouble trouble = Trouble::kSlow;
  // The ranks that lose 5 % of their time or more because of it, those that lose most first, and
  // the part of their time that they lose on average. Nobody waits yet: empty.
  std::vector<Rank> waiters;
  double lost_share = 0;
  std::optional<Duration> own_step;
  std::optional<Duration> median_step;  // of the other ranks
  Duration idle{};                      // since its last sign of life
};

struct JobView {
  std::string job;
  std::string host;
  std::string program;
  int size = 0;
  std::vector<RankView> ranks;
  std::vector<Straggler> stragglers;  // the worst first

  const RankView* find(Rank rank) const;
};

struct ViewOptions {
  // A rank is stuck when it has done nothing for so long, and for five of its usual steps.
  Duration stuck_after = std::chrono::seconds(5);
};

// `before`: earlier snapshots of the ranks, for the beginning of the period. A rank that has none
// there is seen since its beginning.
JobView view_of(const std::vector<Snapshot>& before, const std::vector<Snapshot>& now,
                const ViewOptions& options = {});

// One snapshot of each readable record in the folder. `problems`, if given, gets a line for each
// record that cannot be read.
std::vector<Snapshot> read_folder(const std::string& folder,
                                  std::vector<std::string>* problems = nullptr);

}  // namespace dunlin::flight
