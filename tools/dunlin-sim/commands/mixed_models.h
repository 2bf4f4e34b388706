// MixedModels: what the models of all ranks come to when each rank adds a drift to its model and
// then averages with its in-neighbors, step by step. All elements of a model are equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/graph/mixing.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::simulate {

class MixedModels {
 public:
  explicit MixedModels(const collective::MixingMatrix& mixing)
      : mixing_(mixing), models_(1, std::vector<double>(nodes())) {}

  // Adds to the model what the rank adds before this step.
  static void drift(std::span<float> model, Rank rank, std::uint64_t step);
  // kCorrupted unless all elements of the model are equal.
  static Status check_whole(std::span<const float> model, std::uint64_t step);
  // kCorrupted unless the model is that of the rank after this step, but for rounding.
  Status check(std::span<const float> model, Rank rank, std::uint64_t step);

 private:
  std::size_t nodes() const { return static_cast<std::size_t>(mixing_.graph().nodes()); }
  void add_step();

  const collective::MixingMatrix& mixing_;
  std::vector<std::vector<double>> models_;  // by step
};

}  // namespace dunlin::simulate
