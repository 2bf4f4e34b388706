// Turns a JobView into text for a terminal. Stateless.
#pragma once

#include <string>
#include <vector>

#include "runtime/flight/job_view.h"

namespace dunlin::top {

struct ScreenSize {
  int columns = 0;  // 0: no limit
  int rows = 0;
  bool has_colors = false;
};

// The job, a sentence on each straggler, and a line per rank: what it does, its steps, how much it
// waits and for whom, and what it sends. If the ranks are too many for the screen, those that hold
// up others and those that wait most are shown.
std::string screen(const flight::JobView& job, const ScreenSize& size);

// What the flight records of a job that has ended say: the report, the last state of each rank, and
// its last `events` events, whose times are relative to the last sign of life of the job.
struct PastRank {
  flight::Snapshot snapshot;
  std::vector<flight::PastEvent> events;
};
std::string post_mortem(const std::vector<PastRank>& ranks, std::size_t events);

// "computes", "waits", "stopped", "stuck", "dead", "has left", "failed".
const char* state_of(const flight::RankView& rank, const flight::JobView& job);

}  // namespace dunlin::top
