// Support for tests that compare with LIBLINEAR: its problems, made from our data sets, and its
// models.
#pragma once

#include <gtest/gtest.h>

#if __has_include(<linear.h>)
#include <linear.h>
#else
#include <liblinear/linear.h>
#endif

#include <memory>
#include <vector>

#include "apps/svm/dataset.h"

namespace dunlin::testing {

struct FreeModel {
  void operator()(::model* theirs) const { free_and_destroy_model(&theirs); }
};
using TheirModel = std::unique_ptr<::model, FreeModel>;

// A data set as LIBLINEAR takes it, with the bias as its last feature.
class TheirProblem {
 public:
  TheirProblem(const svm::Dataset& data, double bias)
      : labels_(data.labels.begin(), data.labels.end()) {
    const auto features = static_cast<int>(data.features);
    nodes_.reserve(data.indices.size() + 2 * data.rows());
    for (std::size_t i = 0; i < data.rows(); ++i) {
      const svm::Row row = data.row(i);
      rows_.push_back(nodes_.data() + nodes_.size());
      for (std::size_t k = 0; k < row.indices.size(); ++k) {
        nodes_.push_back({static_cast<int>(row.indices[k]) + 1, row.values[k]});
      }
      if (bias >= 0) nodes_.push_back({features + 1, bias});
      nodes_.push_back({-1, 0});
    }
    problem_.l = static_cast<int>(data.rows());
    problem_.n = features + (bias >= 0 ? 1 : 0);
    problem_.y = labels_.data();
    problem_.x = rows_.data();
    problem_.bias = bias;
  }

  // `solver`: one of linear.h. The solver's stopping criterion is `tolerance`.
  TheirModel solve(int solver, double cost, double tolerance = 1e-10) const {
    ::parameter options{};
    options.solver_type = solver;
    options.C = cost;
    options.eps = tolerance;
    options.p = 0.1;
    EXPECT_EQ(check_parameter(&problem_, &options), nullptr);
    set_print_string_function([](const char*) {});
    return TheirModel(train(&problem_, &options));
  }
  const ::feature_node* row(std::size_t i) const { return rows_[i]; }

 private:
  std::vector<double> labels_;
  std::vector<::feature_node> nodes_;
  std::vector<::feature_node*> rows_;
  ::problem problem_{};
};

}  // namespace dunlin::testing
