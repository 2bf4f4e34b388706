#include "tests/support/group_matrix.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

namespace dunlin::collective {

GroupMatrix::GroupMatrix(int workers) : GroupMatrix(zero(workers)) {
  for (int i = 0; i < workers; ++i) values_[index(i, i)] = 1;
}

GroupMatrix GroupMatrix::zero(int workers) {
  GroupMatrix matrix;
  matrix.workers_ = workers;
  matrix.values_.assign(static_cast<std::size_t>(workers) * static_cast<std::size_t>(workers), 0);
  return matrix;
}

void GroupMatrix::apply(const Group& group) {
  const double share = 1 / static_cast<double>(group.ranks.size());
  for (int row = 0; row < workers_; ++row) {
    double sum = 0;
    for (const Rank rank : group.ranks) sum += values_[index(row, rank.value())];
    for (const Rank rank : group.ranks) values_[index(row, rank.value())] = sum * share;
  }
}

void GroupMatrix::add(const Group& group, double share) {
  for (int i = 0; i < workers_; ++i) {
    if (!group.has(Rank(i))) values_[index(i, i)] += share;
  }
  const double each = share / static_cast<double>(group.ranks.size());
  for (const Rank row : group.ranks) {
    for (const Rank column : group.ranks) values_[index(row.value(), column.value())] += each;
  }
}

bool GroupMatrix::is_doubly_stochastic(double tolerance) const {
  for (int i = 0; i < workers_; ++i) {
    double row = 0;
    double column = 0;
    for (int j = 0; j < workers_; ++j) {
      if (at(i, j) < -tolerance) return false;
      row += at(i, j);
      column += at(j, i);
    }
    if (std::abs(row - 1) > tolerance || std::abs(column - 1) > tolerance) return false;
  }
  return true;
}

double GroupMatrix::spectral_gap() const {
  if (workers_ < 2) return 1;
  Eigen::MatrixXd symmetric(workers_, workers_);
  for (int i = 0; i < workers_; ++i) {
    for (int j = 0; j < workers_; ++j) symmetric(i, j) = (at(i, j) + at(j, i)) / 2;
  }
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(symmetric, Eigen::EigenvaluesOnly);
  const auto& ascending = solver.eigenvalues();
  return 1 - std::max(std::abs(ascending(workers_ - 2)), std::abs(ascending(0)));
}

GroupMatrix product(int workers, std::span<const Group> groups) {
  GroupMatrix matrix(workers);
  for (const Group& group : groups) matrix.apply(group);
  return matrix;
}

}  // namespace dunlin::collective
