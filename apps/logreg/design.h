// Design: the matrix X of the rows of a data set (CSR) with their labels, which a linear model is
// multiplied with. With a bias it has one more column.
//
// The values are the float32 values of the reader; all arithmetic is in double. It is a view: the
// data set has to outlive it and must not change. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/svm/dataset.h"

namespace dunlin::logreg {

class Design {
 public:
  // `bias` is the value of a constant last feature of every row, as LIBLINEAR's -B; negative: there
  // is none.
  Design(const svm::Dataset& data, double bias) : data_(data), bias_(bias) {}
  Design(svm::Dataset&&, double) = delete;

  std::size_t rows() const { return data_.rows(); }
  // The size of a model: the features, and 1 more with a bias.
  std::size_t columns() const { return std::size_t{data_.features} + (bias_ >= 0 ? 1 : 0); }
  double label(std::size_t row) const { return data_.labels[row]; }  // -1 or +1

  // Returns x'v for a row; `v` has columns() elements.
  double times(std::size_t row, std::span<const double> v) const {
    const svm::Row x = data_.row(row);
    const std::uint32_t* const index = x.indices.data();
    const float* const value = x.values.data();
    const std::size_t count = x.indices.size();
    // Four sums: the additions of one sum would wait for one another.
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

  // Counts the rows that the model puts on the side of their label. A row on the plane itself
  // counts as -1, as in LIBLINEAR's predict.
  std::uint64_t count_right(std::span<const double> model) const;

 private:
  const svm::Dataset& data_;
  double bias_;
};

}  // namespace dunlin::logreg
