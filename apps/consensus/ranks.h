// Ranks: sums and maxima over all ranks, to judge a decentralized algorithm from outside. No
// algorithm uses it.
#pragma once

#include <span>

#include "runtime/status.h"

namespace dunlin::consensus {

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int size() const = 0;
  // Collective. In place, element by element over all ranks; the result is bitwise the same on all.
  virtual Status sum(std::span<double> values) = 0;
  virtual Status max(std::span<double> values) = 0;
};

// A job of one rank.
class SingleRank final : public Ranks {
 public:
  int size() const override { return 1; }
  Status sum(std::span<double>) override { return Status::ok(); }
  Status max(std::span<double>) override { return Status::ok(); }
};

}  // namespace dunlin::consensus
