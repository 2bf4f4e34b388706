#include "apps/consensus/history.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dunlin::consensus {

void Trajectory::record(std::uint64_t iteration, std::span<const double> solution) {
  iterations_.push_back(iteration);
  solutions_.insert(solutions_.end(), solution.begin(), solution.end());
}

Result<std::vector<Moment>> Trajectory::compare(std::span<const double> optimum,
                                                Ranks& ranks) const {
  const std::size_t dimension = optimum.size();
  const auto solution = [&](std::size_t moment) {
    return std::span(solutions_).subspan(moment * dimension, dimension);
  };
  Vector means = solutions_;
  DUNLIN_TRY(ranks.sum(means));
  for (double& mean : means) mean /= ranks.size();

  Vector squares;  // of each moment: of the error, of the distance from the mean
  Vector largest;  // of each moment: of the error
  for (std::size_t moment = 0; moment < moments(); ++moment) {
    const double error = distance(solution(moment), optimum);
    const double apart =
        distance(solution(moment), std::span(means).subspan(moment * dimension, dimension));
    squares.insert(squares.end(), {error * error, apart * apart});
    // A maximum with NaN would hide the other values.
    largest.push_back(std::isfinite(error) ? error : std::numeric_limits<double>::infinity());
  }
  DUNLIN_TRY(ranks.sum(squares));
  DUNLIN_TRY(ranks.max(largest));

  const double scale = norm(optimum);
  const auto rms = [&](double sum) { return std::sqrt(sum / ranks.size()) / scale; };
  std::vector<Moment> history;
  for (std::size_t moment = 0; moment < moments(); ++moment) {
    history.push_back({.iteration = iterations_[moment],
                       .error_max = largest[moment] / scale,
                       .error_rms = rms(squares[2 * moment]),
                       .consensus = rms(squares[2 * moment + 1])});
  }
  return history;
}

std::optional<double> fitted_rate(const std::vector<Moment>& history) {
  double smallest = std::numeric_limits<double>::infinity();
  for (const Moment& moment : history) smallest = std::min(smallest, moment.error_rms);
  // Below this, the final error shows in the curve.
  const double floor = 30 * smallest;
  std::size_t end = 0;
  while (end < history.size() && history[end].error_rms > floor) ++end;
  const std::size_t begin = end / 10;
  if (end - begin < 5) return std::nullopt;

  double mean_x = 0;
  double mean_y = 0;
  const auto count = static_cast<double>(end - begin);
  for (std::size_t i = begin; i < end; ++i) {
    mean_x += static_cast<double>(history[i].iteration) / count;
    mean_y += std::log(history[i].error_rms) / count;
  }
  double covariance = 0;
  double variance = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const double x = static_cast<double>(history[i].iteration) - mean_x;
    covariance += x * (std::log(history[i].error_rms) - mean_y);
    variance += x * x;
  }
  const double rate = std::exp(covariance / variance);
  if (!(rate < 1)) return std::nullopt;
  return rate;
}

}  // namespace dunlin::consensus
