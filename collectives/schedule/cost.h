// The cost model: predicts how long a schedule takes if a message costs alpha + beta * bytes and a
// reduction costs launch + gamma * bytes. README.md states the rules and their consequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collectives/schedule/program.h"
#include "collectives/schedule/team.h"
#include "collectives/schedule/walk.h"
#include "runtime/status.h"

namespace dunlin::collective {

// The cost of one class of links, for example those within a host or those between hosts.
struct LinkCost {
  double alpha = 0;  // seconds from the departure of a message's last byte until its arrival
  double beta = 0;   // seconds per byte: 1 / bandwidth
};

struct CostModel {
  std::vector<LinkCost> links;  // by class
  // Returns the class of the link from one rank to another. Called often, from one thread. Empty:
  // all links are of class 0.
  std::function<std::size_t(int from, int to)> class_of;
  // Seconds per byte that a rank adds to another byte, or copies.
  double gamma = 0;
  // Seconds that each reduction and copy takes beside: on GPUs, the start of a kernel.
  double launch = 0;

  static CostModel uniform(const LinkCost& link, double gamma);
  // Links within a group of ranks are of class 0, links between groups of class 1. Copies `groups`.
  static CostModel grouped(const Grouping& groups, const LinkCost& within, const LinkCost& between,
                           double gamma);
  const LinkCost& link(int from, int to) const {
    return links[class_of ? class_of(from, to) : std::size_t{0}];
  }
};

// When a step ended. It began when the previous step of its rank ended.
struct StepTime {
  double end = 0;                  // seconds
  std::int32_t sender = kSelf;     // waits only: the rank whose message arrived, and the index of
  std::uint32_t sender_index = 0;  // the step that sent it
  bool is_late = false;            // waits only: the rank had to wait for the message
};

struct LinkUse {
  std::uint64_t puts = 0;
  std::uint64_t signals = 0;
  std::uint64_t bytes = 0;
};

struct CostReport {
  double seconds = 0;  // when the last rank ended; all begin at 0
  std::vector<double> rank_seconds;
  std::vector<LinkUse> links;       // by class
  std::uint64_t reduced_bytes = 0;  // bytes that cost gamma, summed over all ranks
  // The steps that determined `seconds`, from time 0 on. Each begins when the one before it ended
  // or, after a message, when the message arrived.
  std::vector<StepId> critical_path;
  std::vector<std::vector<StepTime>> times;  // by rank and step

  double begin(const StepId& id) const {
    return id.index == 0 ? 0 : times[static_cast<std::size_t>(id.rank)][id.index - 1].end;
  }
  double end(const StepId& id) const {
    return times[static_cast<std::size_t>(id.rank)][id.index].end;
  }
};

// programs[r] is the program of rank r. `element`: bytes per element. Returns kCorrupted if the
// schedule does not come to an end, and kInvalidArgument for a model with negative costs or with a
// class of links that it does not define.
Result<CostReport> predict(std::span<const Program> programs, std::size_t element,
                           const CostModel& model);

}  // namespace dunlin::collective
