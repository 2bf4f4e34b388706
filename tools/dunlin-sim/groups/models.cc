#include "tools/dunlin-sim/groups/models.h"

#include <algorithm>

namespace dunlin::simulate {
namespace {

// Computes in double precision, so that the mean of equal values is exactly that value.
template <typename VectorOf>
std::vector<float> mean_of(std::size_t count, VectorOf vector_of) {
  std::vector<double> sum(LearningProblem::kParameters);
  for (std::size_t i = 0; i < count; ++i) {
    const std::vector<float>& added = vector_of(i);
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += added[k];
  }
  std::vector<float> mean(sum.size());
  for (std::size_t k = 0; k < sum.size(); ++k)
    mean[k] = static_cast<float>(sum[k] / static_cast<double>(count));
  return mean;
}

}  // namespace

GroupModels::GroupModels(const LearningProblem& problem, const LearningOptions& options,
                         int workers)
    : problem_(&problem),
      options_(options),
      models_(static_cast<std::size_t>(workers), problem.initial_model()),
      gradients_(models_.size(), std::vector<float>(LearningProblem::kParameters)),
      server_(models_.front()) {}

void GroupModels::compute(Rank rank, std::uint64_t iteration) {
  if (problem_ == nullptr) return;
  problem_->gradient(models_[rank.index()], rank, iteration, options_.batch,
                     gradients_[rank.index()]);
}

void GroupModels::step(std::vector<float>& model, const std::vector<float>& gradient,
                       double rate) const {
  const auto factor = static_cast<float>(rate);
  for (std::size_t k = 0; k < model.size(); ++k) model[k] -= factor * gradient[k];
}

void GroupModels::step(Rank rank) {
  if (problem_ == nullptr) return;
  step(models_[rank.index()], gradients_[rank.index()], options_.learning_rate);
}

void GroupModels::average(const std::vector<Rank>& ranks) {
  if (problem_ == nullptr || ranks.size() < 2) return;
  const auto mean = mean_of(
      ranks.size(), [&](std::size_t i) -> const auto& { return models_[ranks[i].index()]; });
  for (const Rank rank : ranks) models_[rank.index()] = mean;
}

std::vector<float> GroupModels::mean_gradient() const {
  return mean_of(
      gradients_.size(), [&](std::size_t i) -> const auto& { return gradients_[i]; });
}

void GroupModels::step_by_mean() {
  if (problem_ == nullptr) return;
  const std::vector<float> mean = mean_gradient();
  for (std::vector<float>& model : models_) step(model, mean, options_.learning_rate);
}

void GroupModels::serve_mean() {
  if (problem_ == nullptr) return;
  has_server_ = true;
  step(server_, mean_gradient(), options_.learning_rate);
}

void GroupModels::serve(Rank rank) {
  if (problem_ == nullptr) return;
  has_server_ = true;
  step(server_, gradients_[rank.index()],
       options_.learning_rate / static_cast<double>(models_.size()));
}

void GroupModels::pull(Rank rank) {
  if (problem_ != nullptr) models_[rank.index()] = server_;
}

std::vector<float> GroupModels::mean_model() const {
  return mean_of(
      models_.size(), [&](std::size_t i) -> const auto& { return models_[i]; });
}

double GroupModels::loss() const {
  if (problem_ == nullptr) return 0;
  if (has_server_) return problem_->loss(server_);
  return problem_->loss(options_.judges_worker ? models_.front() : mean_model());
}

}  // namespace dunlin::simulate
