// Ranks: what all ranks find out together, to judge a decentralised algorithm from outside: sums
// and maxima. No algorithm uses it.
#pragma once

#include <span>

#include "runtime/status.h"

namespace dunlin::consensus {

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int size() const = 0;
  // Collective: element by element over all ranks, in place, bitwise the same on all.
  virtual Status sum(std::span<double> values) = 0;
  virtual Status max(std::span<double> values) = 0;
};

// A rank by itself.
class SingleRank final : public Ranks {
 public:
  int size() const override { return 1; }
  Status sum(std::span<double>) override { return Status::ok(); }
  Status max(std::span<double>) override { return Status::ok(); }
};

}  // namespace dunlin::consensus
