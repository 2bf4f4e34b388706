// GroupMatrix: the effect of group averages on the workers' models, as the matrix F^G of Ripples /
// Prague (sections 3.2 and 3.3). For n workers it is an n x n matrix. Its elements are 1 / |G|
// between the members of G, and 1 on the diagonal for all other workers.
//
// The models, as columns of X, become X F. F is symmetric, doubly stochastic and its own square, so
// that E[F^T F] = E[F]. The paper's condition for convergence is that the second largest eigenvalue
// of E[F] is below 1, which holds when the groups, as edges, connect all workers.
#pragma once

#include <span>
#include <vector>

#include "collectives/groups/group.h"

namespace dunlin::collective {

class GroupMatrix {
 public:
  // The identity.
  explicit GroupMatrix(int workers);

  int workers() const { return workers_; }
  double at(int row, int column) const { return values_[index(row, column)]; }

  // Multiplies this by F^G: the group reduces after all previous ones.
  void apply(const Group& group);
  // Adds `share` times F^G. From zero() and with shares that sum to 1, the result is an
  // expectation.
  void add(const Group& group, double share);
  static GroupMatrix zero(int workers);

  bool is_doubly_stochastic(double tolerance = 1e-9) const;
  // 1 minus the second largest absolute eigenvalue of (M + M^T) / 2, which equals M when M is an
  // expectation; 1 for a single worker.
  double spectral_gap() const;

 private:
  GroupMatrix() = default;
  std::size_t index(int row, int column) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(workers_) +
           static_cast<std::size_t>(column);
  }

  int workers_ = 0;
  std::vector<double> values_;
};

// F^G1 F^G2 ... in the given order.
GroupMatrix product(int workers, std::span<const Group> groups);

}  // namespace dunlin::collective
