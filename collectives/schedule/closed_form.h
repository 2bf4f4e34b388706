// Formulas for the times that the cost model (cost.h) predicts for the all-reduce algorithms.
// README.md derives them, beginning with those of section 5.1 of the 2D-TGA paper. They hold for
// vectors that are neither segmented nor sliced.
#pragma once

#include <optional>
#include <string_view>

#include "collectives/schedule/cost.h"

namespace dunlin::collective {

struct ClosedFormCase {
  int ranks = 1;
  int groups = 1;    // for hierarchical and 2d-tga
  Grid grid{0, 0};   // torus-2d: of ranks; 2d-tga: of groups; 0: the most square one
  double bytes = 0;  // length of the vector
  LinkCost within;   // hierarchical and 2d-tga: links within groups
  LinkCost between;  // hierarchical and 2d-tga: links between groups; other algorithms: all links
  double gamma = 0;  // seconds per reduced byte
};

// Returns seconds. The result equals predict() if the ranks, groups and grid divide everything
// evenly; otherwise it differs by at most the difference between the parts. Returns kNotFound if
// there is no formula for `algorithm` (mesh-2d, whose halves interleave), and kInvalidArgument if
// the shape does not suit.
Result<double> closed_form(std::string_view algorithm, const ClosedFormCase& of);

}  // namespace dunlin::collective
