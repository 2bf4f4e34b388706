#include "tools/dunlin-sim/commands/mixed_models.h"

#include <fmt/format.h>

#include <cmath>

namespace dunlin::simulate {
namespace {

double change(std::size_t rank, std::uint64_t step) {
  return std::cos(static_cast<double>(rank * 31 + step * 7));
}

}  // namespace

void MixedModels::drift(std::span<float> model, Rank rank, std::uint64_t step) {
  const auto value = static_cast<float>(change(rank.index(), step));
  for (float& element : model) element += value;
}

Status MixedModels::check_whole(std::span<const float> model, std::uint64_t step) {
  for (std::size_t i = 1; i < model.size(); ++i) {
    if (model[i] == model[0]) continue;
    return {Code::kCorrupted,
            fmt::format("step {} took in a torn model: element {} is {}, element 0 is {}", step, i,
                        model[i], model[0])};
  }
  return Status::ok();
}

Status MixedModels::check(std::span<const float> model, Rank rank, std::uint64_t step) {
  DUNLIN_TRY(check_whole(model, step));
  while (models_.size() <= step) add_step();
  const double expected = models_[step][rank.index()];
  // Each step rounds numbers of up to this size to float.
  const double tolerance = 1e-6 * static_cast<double>(step + 10);
  if (std::abs(static_cast<double>(model[0]) - expected) <= tolerance * (1 + std::abs(expected)))
    return Status::ok();
  return {Code::kCorrupted, fmt::format("step {} came to {}, not {}", step, model[0], expected)};
}

void MixedModels::add_step() {
  std::vector<double> moved = models_.back();
  for (std::size_t node = 0; node < nodes(); ++node) moved[node] += change(node, models_.size());
  mixing_.multiply(moved, models_.emplace_back(nodes()));
}

}  // namespace dunlin::simulate
