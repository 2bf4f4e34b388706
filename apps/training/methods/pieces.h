// Pieces: a part of a model, cut for transfer, and which pieces of a gradient may go already.
//
// Pieces are numbered from the end of the part to its beginning, the order in which a backward pass
// makes gradients final, and are always sent in that order: so it is the same on all ranks,
// whatever the order of their ready(). A value; one thread.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/status.h"

namespace dunlin::training {

struct ModelRange {
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t end() const { return first + count; }
};

// The contiguous part of `count` parameters that the `index`-th of `parts` holds.
ModelRange share_of(std::size_t count, std::size_t parts, std::size_t index);
// kOutOfRange beyond a model of `count` parameters.
Status check_range(ModelRange range, std::size_t count);

class Pieces {
 public:
  // `piece_elements`: of a piece, at most.
  Pieces(ModelRange whole, std::size_t piece_elements);

  std::size_t size() const { return missing_.size(); }
  ModelRange at(std::size_t index) const;

  // Nothing is ready.
  void reset();
  // What of `range` lies in this part is ready; kInvalidArgument where it was before.
  Status add(ModelRange range);
  void add_all() { ready_ = size(); }
  // Pieces 0 .. ready() - 1 are ready as a whole.
  std::size_t ready() const { return ready_; }

 private:
  ModelRange whole_;
  std::size_t piece_elements_;
  std::vector<std::size_t> missing_;  // elements, by piece
  std::size_t ready_ = 0;
};

}  // namespace dunlin::training
