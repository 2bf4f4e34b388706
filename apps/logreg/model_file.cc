#include "apps/logreg/model_file.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace dunlin::logreg {

std::string model_text(const svm::Dataset& data, double bias, std::span<const double> model) {
  // The thresholds 0, 0.5 and 1.5 lie between the labels.
  const int positive = static_cast<int>(std::floor(data.label_threshold)) + 1;
  const int negative = data.label_threshold == 0 ? -1 : positive - 1;
  std::string text =
      fmt::format("solver_type L2R_LR\nnr_class 2\nlabel {} {}\nnr_feature {}\nbias {:.17g}\nw\n",
                  positive, negative, data.features, bias >= 0 ? bias : -1.0);
  // So many digits that reading gives the same doubles.
  for (const double weight : model) fmt::format_to(std::back_inserter(text), "{:.17g}\n", weight);
  return text;
}

}  // namespace dunlin::logreg
