// LinearModel: a trained linear classifier of two classes, and its file in LIBLINEAR's text format,
// which LIBLINEAR's train writes and its predict reads. A value; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/svm/dataset.h"
#include "apps/svm/loss.h"
#include "runtime/status.h"

namespace dunlin::svm {

struct LinearModel {
  // LIBLINEAR's name of what trained the model. Prediction does not depend on it.
  std::string solver;
  // The labels of rows whose decision value is above 0, and of all others.
  std::array<int, 2> labels{1, -1};
  std::uint32_t features = 0;
  double bias = -1;             // the value of a constant last feature; negative: there is none
  std::vector<double> weights;  // `features`, and one more for the bias where there is one

  bool operator==(const LinearModel&) const = default;

  // The signed distance of a row from the plane, times the length of the weights. Indices of the
  // row are below `features`.
  double decision(const Row& row) const;
};

// A model that was trained with this loss and an L2 regularizer. `data` tells the number of
// features and, by its label_threshold, the labels of the training file: -1/+1, 0/1 or 1/2.
LinearModel make_model(Loss loss, const Dataset& data, double bias, std::vector<double> weights);

// The file's content. Reading it gives the same weights, to the last bit.
std::string model_text(const LinearModel& model);

// kInvalidArgument, "name:line: problem", for text that is not such a model, and for models that
// are no classifiers of two classes with one vector of weights.
Result<LinearModel> parse_model(std::string_view name, std::string_view text);

// The error that save_model() would return for this path, as far as that is known before a training
// begins. Ok for an empty path: no model is to be saved.
Status check_model_path(const std::string& path);
// Replaces the file as a whole.
Status save_model(const std::string& path, const LinearModel& model);
Result<LinearModel> load_model(const std::string& path);

}  // namespace dunlin::svm
