// What the cost model (cost.h) predicts for the all-reduce algorithms, as formulas; README.md
// derives them, from the paper's section 5.1 on. They hold for vectors in one piece: without
// segments and slices.
#pragma once

#include <optional>
#include <string_view>

#include "collectives/schedule/cost.h"

namespace dunlin::collective {

struct ClosedFormCase {
  int ranks = 1;
  int groups = 1;    // hierarchical, 2d-tga
  Grid grid{0, 0};   // torus-2d: of ranks, 2d-tga: of groups; 0: squarest
  double bytes = 0;  // of the vector
  LinkCost within;   // hierarchical, 2d-tga: links within groups
  LinkCost between;  // their links between groups; all links of the other algorithms
  double gamma = 0;  // seconds per reduced byte
};

// Seconds. Equal to predict() where ranks, groups and grid divide everything evenly, and where no
// division is even, within what the parts differ by. kNotFound when there is no formula for
// `algorithm` (mesh-2d: its halves interleave); kInvalidArgument for a shape that doesn't suit.
Result<double> closed_form(std::string_view algorithm, const ClosedFormCase& of);

}  // namespace dunlin::collective
