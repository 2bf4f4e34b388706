#include "apps/svm/program/prediction.h"

#include <fmt/format.h>

#include <string>

#include "apps/svm/libsvm_reader.h"
#include "apps/svm/linear_model.h"
#include "apps/teller.h"
#include "runtime/files/output_file.h"

namespace dunlin::svm {

Status predict(const Options& options) {
  Teller teller;
  DUNLIN_TRY(teller.open(true, options.output));
  DUNLIN_ASSIGN(const LinearModel model, load_model(options.predict));
  const auto [first, second] = model.labels;
  LibsvmOptions reading;
  reading.features = model.features;
  reading.drop_beyond = true;
  reading.label_threshold = static_cast<float>(first + second) / 2;
  DUNLIN_ASSIGN(const Dataset data, read_libsvm(options.test, reading));

  // The reader makes the larger label +1.
  const float label_of_first = first > second ? 1.0F : -1.0F;
  std::uint64_t right = 0;
  std::string predicted;
  for (std::size_t i = 0; i < data.rows(); ++i) {
    const Row row = data.row(i);
    const bool is_first = model.decision(row) > 0;
    right += is_first == (row.label == label_of_first) ? 1 : 0;
    if (!options.predicted.empty()) predicted += fmt::format("{}\n", is_first ? first : second);
  }
  if (!options.predicted.empty()) {
    DUNLIN_TRY(replace_file(options.predicted, predicted));
  }
  const double accuracy = static_cast<double>(right) / static_cast<double>(data.rows());
  DUNLIN_TRY(teller.event("prediction", {{"model", options.predict},
                                         {"data", options.test},
                                         {"rows", data.rows()},
                                         {"right", right},
                                         {"accuracy", accuracy},
                                         {"dropped_values", data.dropped_values}}));
  return teller.say(fmt::format("accuracy {:.4f} % ({}/{})", 100 * accuracy, right, data.rows()));
}

}  // namespace dunlin::svm
