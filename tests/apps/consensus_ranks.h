// All ranks of an optimization in one thread: problems, their common optimum, and algorithms that
// take turns. They average with the weight matrix instead of messages.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "apps/consensus/algorithm.h"
#include "apps/consensus/topology.h"

namespace dunlin::testing {

inline std::vector<consensus::Vector> matrix_of(const consensus::Topology& topology,
                                                std::uint64_t step) {
  const auto ranks = static_cast<std::size_t>(topology.ranks());
  std::vector<consensus::Vector> matrix(ranks, consensus::Vector(ranks));
  for (int i = 0; i < topology.ranks(); ++i) {
    const consensus::StepWeights own = topology.weights(i, step);
    auto& row = matrix[static_cast<std::size_t>(i)];
    row[static_cast<std::size_t>(i)] = own.self;
    for (const auto& from : own.from) {
      bool is_sent = false;
      for (const auto& to : topology.weights(from.rank.value(), step).to) {
        if (to.rank != Rank(i)) continue;
        row[from.rank.index()] = from.weight * to.weight;
        is_sent = true;
      }
      EXPECT_TRUE(is_sent) << i << " expects " << from.rank.value() << " in step " << step;
    }
  }
  return matrix;
}

// One problem that behaves as the mean of the problems of all ranks.
class MeanProblem final : public consensus::Problem {
 public:
  explicit MeanProblem(const std::vector<std::unique_ptr<consensus::Problem>>& problems)
      : problems_(problems) {}
  std::size_t dimension() const override { return problems_.front()->dimension(); }
  void gradient(std::span<const double> x, std::span<double> gradient) const override {
    std::fill(gradient.begin(), gradient.end(), 0);
    consensus::Vector one(dimension());
    for (const auto& problem : problems_) {
      problem->gradient(x, one);
      for (std::size_t i = 0; i < one.size(); ++i) gradient[i] += one[i] / share();
    }
  }
  consensus::SymmetricMatrix hessian(std::span<const double> x) const override {
    consensus::SymmetricMatrix mean(dimension());
    for (const auto& problem : problems_) {
      const auto one = problem->hessian(x);
      for (std::size_t i = 0; i < one.entries().size(); ++i) {
        mean.entries()[i] += one.entries()[i] / share();
      }
    }
    return mean;
  }
  double smoothness() const override {
    double largest = 0;
    for (const auto& problem : problems_) largest = std::max(largest, problem->smoothness());
    return largest;
  }

 private:
  double share() const { return static_cast<double>(problems_.size()); }
  const std::vector<std::unique_ptr<consensus::Problem>>& problems_;
};

struct Team {
  Team(const consensus::ProblemOptions& options, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      problems.push_back(consensus::make_problem(options, rank).value());
    }
    consensus::SingleRank single;
    optimum = consensus::find_optimum(MeanProblem(problems), single).value();
  }

  struct Outcome {
    double error = 0;         // of the worst rank, relative
    double disagreement = 0;  // of the rank that is farthest from the mean, relative
  };
  // `factor` is in units of 1 / L.
  Outcome run(consensus::Method method, const consensus::Topology& topology, double factor,
              int iterations, double decay = 0) const {
    std::vector<std::unique_ptr<consensus::Algorithm>> algorithms;
    for (const auto& problem : problems) {
      const consensus::StepSize step{factor / optimum.smoothness, decay};
      algorithms.push_back(consensus::make_algorithm(method, *problem, step).value());
    }
    for (int iteration = 0; iteration < iterations; ++iteration) {
      for (auto& algorithm : algorithms) algorithm->prepare();
      average(algorithms, matrix_of(topology, static_cast<std::uint64_t>(iteration)));
      for (auto& algorithm : algorithms) algorithm->finish();
    }
    return outcome(algorithms);
  }

  std::vector<std::unique_ptr<consensus::Problem>> problems;
  consensus::Optimum optimum;

 private:
  using Algorithms = std::vector<std::unique_ptr<consensus::Algorithm>>;

  static void average(const Algorithms& algorithms, const std::vector<consensus::Vector>& matrix) {
    std::vector<consensus::Vector> messages;
    for (const auto& algorithm : algorithms) {
      messages.emplace_back(algorithm->message().begin(), algorithm->message().end());
    }
    for (std::size_t i = 0; i < algorithms.size(); ++i) {
      const auto message = algorithms[i]->message();
      std::fill(message.begin(), message.end(), 0);
      for (std::size_t j = 0; j < algorithms.size(); ++j) {
        for (std::size_t k = 0; k < message.size(); ++k) {
          message[k] += matrix[i][j] * messages[j][k];
        }
      }
    }
  }

  Outcome outcome(const Algorithms& algorithms) const {
    consensus::Vector mean(optimum.x.size());
    for (const auto& algorithm : algorithms) {
      for (std::size_t i = 0; i < mean.size(); ++i) {
        mean[i] += algorithm->solution()[i] / static_cast<double>(algorithms.size());
      }
    }
    Outcome outcome;
    const double scale = consensus::norm(optimum.x);
    for (const auto& algorithm : algorithms) {
      const auto solution = algorithm->solution();
      outcome.error = std::max(outcome.error, consensus::distance(solution, optimum.x) / scale);
      outcome.disagreement =
          std::max(outcome.disagreement, consensus::distance(solution, mean) / scale);
    }
    return outcome;
  }
};

}  // namespace dunlin::testing
