// The steps of a schedule as drawings show them. The SVG and the trace are made from these.
#pragma once

#include <string>
#include <vector>

#include "collectives/schedule/cost.h"

namespace dunlin::collective {

struct DrawnStep {
  StepId id;
  StepKind kind = StepKind::kSignal;
  double begin = 0;  // seconds
  double end = 0;
  int peer = kSelf;    // rank that it puts to, signals or waits for
  double arrival = 0;  // of puts and signals, at the peer
  StepId message;      // of waits: the awaited put or signal
  bool has_bytes = false;
  Range elements;  // elements of the vector that the step moves or reduces
  bool is_critical = false;
  std::string text;
};

// Returns every step once, rank by rank, in the order of the programs.
Result<std::vector<DrawnStep>> drawn_steps(std::span<const Program> programs,
                                           const CostReport& report, const CostModel& model);

const char* to_string(StepKind kind);  // "put", ...

}  // namespace dunlin::collective
