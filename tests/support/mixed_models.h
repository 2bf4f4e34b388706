// The expected models of ranks that average in groups, one group after another: the product of the
// groups' mixing matrices (F^G of Ripples / Prague, section 3.2) with the initial models.
#pragma once

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "runtime/rank.h"

namespace dunlin::testing {

class MixedModels {
 public:
  explicit MixedModels(int size) : size_(static_cast<std::size_t>(size)), product_(size_ * size_) {
    for (std::size_t rank = 0; rank < size_; ++rank) product_[rank * size_ + rank] = 1;
  }

  static double initial(std::size_t rank, std::size_t element) {
    return std::sin(static_cast<double>(rank * 131 + element % 1009));
  }

  void average(const std::vector<Rank>& group) {
    for (std::size_t from = 0; from < size_; ++from) {
      double sum = 0;
      for (const Rank member : group) sum += weight(member.index(), from);
      for (const Rank member : group)
        product_[member.index() * size_ + from] = sum / static_cast<double>(group.size());
    }
  }

  double value(Rank rank, std::size_t element) const {
    double sum = 0;
    for (std::size_t from = 0; from < size_; ++from)
      sum += weight(rank.index(), from) * initial(from, element);
    return sum;
  }

  // The weight of the initial model of rank `from` in a rank's model.
  double weight(std::size_t rank, std::size_t from) const { return product_[rank * size_ + from]; }

  // Draws at least one of the `size` ranks.
  static std::vector<Rank> draw_group(std::mt19937_64& random, int size) {
    std::vector<Rank> group;
    while (group.empty()) {
      for (int rank = 0; rank < size; ++rank) {
        if (random() % 3 == 0) group.emplace_back(rank);
      }
    }
    return group;
  }

 private:
  std::size_t size_;
  std::vector<double> product_;
};

}  // namespace dunlin::testing
