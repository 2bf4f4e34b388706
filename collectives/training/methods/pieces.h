// Pieces: cuts a part of a model for transfer, and tracks which pieces of a gradient are ready.
//
// Pieces are numbered from the end of the part to its beginning, because a backward pass makes
// gradients final in that order. They are always sent in that order, so it is the same on all ranks
// in whatever order they call ready(). A value; one thread.
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

// The `index`-th of `parts` contiguous parts of `count` parameters.
ModelRange share_of(std::size_t count, std::size_t parts, std::size_t index);
// Returns kOutOfRange unless `range` lies within `count` parameters.
Status check_range(ModelRange range, std::size_t count);

class Pieces {
 public:
  // A piece has at most `piece_elements` elements.
  Pieces(ModelRange whole, std::size_t piece_elements);

  std::size_t size() const { return missing_.size(); }
  ModelRange at(std::size_t index) const;

  // Makes all pieces not ready.
  void reset();
  // Makes the elements of `range` ready that lie in this part. Returns kInvalidArgument if one of
  // them already was.
  Status add(ModelRange range);
  void add_all() { ready_ = size(); }
  // The pieces 0 .. ready() - 1 are completely ready.
  std::size_t ready() const { return ready_; }

 private:
  ModelRange whole_;
  std::size_t piece_elements_;
  std::vector<std::size_t> missing_;  // by piece: elements that are not ready
  std::size_t ready_ = 0;
};

}  // namespace dunlin::training
