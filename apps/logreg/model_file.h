// Models in LIBLINEAR's text format, as its train writes and its predict reads them. Stateless.
#pragma once

#include <span>
#include <string>

#include "apps/logreg/design.h"

namespace dunlin::logreg {

// `model` has data.features elements and, where `bias` isn't negative, one more for it. The labels
// are those of the training file, which data.label_threshold tells: -1/+1, 0/1 or 1/2.
std::string model_text(const svm::Dataset& data, double bias, std::span<const double> model);

}  // namespace dunlin::logreg
