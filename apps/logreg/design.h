// Design: the matrix X of a data set's rows (CSR), with a column more where there is a bias, and
// its labels; what a linear model multiplies with.
//
// The values are those that the reader keeps, float32; all arithmetic is in double. A view: the
// data set outlives it and doesn't change. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/svm/dataset.h"

namespace dunlin::logreg {

class Design {
 public:
  // `bias`: the value of a constant last feature of every row, as LIBLINEAR's -B; negative: none.
  Design(const svm::Dataset& data, double bias) : data_(data), bias_(bias) {}
  Design(svm::Dataset&&, double) = delete;

  std::size_t rows() const { return data_.rows(); }
  // Features, and 1 for a bias: the size of a model.
  std::size_t columns() const { return std::size_t{data_.features} + (bias_ >= 0 ? 1 : 0); }
  double label(std::size_t row) const { return data_.labels[row]; }  // -1 or +1

  // x'v of a row; `v` has columns() elements.
  double times(std::size_t row, std::span<const double> v) const {
    const svm::Row x = data_.row(row);
    const std::uint32_t* const index = x.indices.data();
    const float* const value = x.values.data();
    const std::size_t count = x.indices.size();
    // Four sums: additions of one sum would wait for one another.
    double sums[4] = {bias_ >= 0 ? bias_ * v.back() : 0};
    std::size_t i = 0;
    for (; i + 4 <= count; i += 4) {
      for (std::size_t k = 0; k < 4; ++k) sums[k] += v[index[i + k]] * value[i + k];
    }
    for (; i < count; ++i) sums[0] += v[index[i]] * value[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

  // target += factor x; `target` has columns() elements.
  void add_row(std::size_t row, double factor, std::span<double> target) const {
    const svm::Row x = data_.row(row);
    for (std::size_t i = 0; i < x.indices.size(); ++i) target[x.indices[i]] += factor * x.values[i];
    if (bias_ >= 0) target.back() += factor * bias_;
  }

  // Rows that the model puts on their label's side. A row on the plane itself counts as -1, which
  // is what LIBLINEAR's predict says of it.
  std::uint64_t count_right(std::span<const double> model) const;

 private:
  const svm::Dataset& data_;
  double bias_;
};

}  // namespace dunlin::logreg
