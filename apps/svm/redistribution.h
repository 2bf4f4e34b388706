// Redistribution: the state with which a rank continues a run that another number of ranks saved.
// It continues as if the run had always had its present number of ranks, with models from the saved
// ones:
// - model and average: the mean of those that fall to the rank (checkpoint_search.h)
// - number of exchanges, place in the data, learning rate: those after as many passes over the
// whole
//   set as all saved ranks have made together, rounded to the nearest exchange
// - order of the rows: that of the rank's shard in the present run
// Owner thread only.
#pragma once

#include <cstdint>

#include "apps/svm/checkpoint.h"
#include "apps/vector_mean.h"

namespace dunlin::svm {

// The number of exchanges after which each of `ranks` ranks has had its part of `examples` examples
// of the whole set.
std::uint64_t exchanges_for(double examples, std::uint64_t total_rows, std::uint32_t ranks,
                            std::uint64_t sync_every);

class Redistribution {
 public:
  // Adds a state that falls to this rank. All are of one run.
  void add(const Checkpoint& saved);

  // The state of the rank that `fresh` describes as it would start anew, after so many exchanges.
  // Needs one added state at least.
  Checkpoint state(const Checkpoint& fresh, std::uint64_t exchanges,
                   std::uint64_t sync_every) const;

 private:
  VectorMean model_;
  VectorMean average_;
  bool has_average_ = false;
  double eta0_ = 0;
};

}  // namespace dunlin::svm
