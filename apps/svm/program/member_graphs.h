// MemberGraphs: the node graph of the workers that train at present. Owner thread only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/graph/graph.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::svm {

class MemberGraphs {
 public:
  // `spec`: see collectives/graph/generators.h. `founders`: the ranks that start the job.
  MemberGraphs(std::string spec, int founders) : spec_(std::move(spec)), founders_(founders) {}

  // The graph of these ranks, which are ascending. It depends on nothing but them: not all members
  // have been members before, nor seen each change. Founders alone get what a death leaves of their
  // graph. Where others have joined, the graph is made for the number of members. kInvalidArgument
  // if the graph of all founders is not strongly connected.
  Result<collective::Graph> of(const std::vector<Rank>& members);

 private:
  Status make_whole();

  std::string spec_;
  int founders_;
  std::optional<collective::Graph> whole_;  // of all founders, once it is needed
};

}  // namespace dunlin::svm
