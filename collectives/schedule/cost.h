// The cost model: how long a schedule takes where messages cost alpha + beta * bytes and reducing
// costs gamma * bytes. README.md has the rules and what follows from them.
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

// Of a class of links: those within a host, say, or those between hosts.
struct LinkCost {
  double alpha = 0;  // seconds from a message's last byte at the sender until the receiver has it
  double beta = 0;   // seconds per byte: 1 / bandwidth
};

struct CostModel {
  std::vector<LinkCost> links;  // by class
  // Which class the link from one rank to another is of; called from one thread, often. Empty: all
  // are of class 0.
  std::function<std::size_t(int from, int to)> class_of;
  // Seconds per byte that a rank adds to another, or copies: the rank's own, whatever its links.
  double gamma = 0;

  static CostModel uniform(const LinkCost& link, double gamma);
  // Class 0 within a group of ranks, class 1 between groups. The grouping is copied.
  static CostModel grouped(const Grouping& groups, const LinkCost& within, const LinkCost& between,
                           double gamma);
  const LinkCost& link(int from, int to) const {
    return links[class_of ? class_of(from, to) : std::size_t{0}];
  }
};

// When a step ended; it began when the rank's step before ended.
struct StepTime {
  double end = 0;                  // seconds
  std::int32_t sender = kSelf;     // of waits: whose message, and which step of the sender's
  std::uint32_t sender_index = 0;  // put it or signalled
  bool is_late = false;            // of waits: the rank was there before the message
};

struct LinkUse {
  std::uint64_t puts = 0;
  std::uint64_t signals = 0;
  std::uint64_t bytes = 0;
};

struct CostReport {
  double seconds = 0;  // until the last rank's end; all begin at 0
  std::vector<double> rank_seconds;
  std::vector<LinkUse> links;       // by class
  std::uint64_t reduced_bytes = 0;  // that gamma was paid for, at all ranks together
  // What the end waited for: each step begins when the one before it ended, or, after a message,
  // when that arrived. From time 0 to `seconds`.
  std::vector<StepId> critical_path;
  std::vector<std::vector<StepTime>> times;  // by rank and step

  double begin(const StepId& id) const {
    return id.index == 0 ? 0 : times[static_cast<std::size_t>(id.rank)][id.index - 1].end;
  }
  double end(const StepId& id) const {
    return times[static_cast<std::size_t>(id.rank)][id.index].end;
  }
};

// programs[r] is rank r's; elements are `element` bytes. kCorrupted when the schedule doesn't come
// to an end; kInvalidArgument for a model with negative costs or a class that it hasn't.
Result<CostReport> predict(std::span<const Program> programs, std::size_t element,
                           const CostModel& model);

}  // namespace dunlin::collective
