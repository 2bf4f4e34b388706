#include "apps/svm/linear_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include "apps/svm/input_file.h"
#include "apps/svm/libsvm_line.h"
#include "runtime/files/destination.h"
#include "runtime/files/output_file.h"

namespace dunlin::svm {
namespace {

// LIBLINEAR's solvers that train one vector of weights for two classes.
constexpr std::string_view kSolvers[] = {
    "L2R_LR", "L2R_L2LOSS_SVC_DUAL", "L2R_L2LOSS_SVC", "L2R_L1LOSS_SVC_DUAL", "L1R_L2LOSS_SVC",
    "L1R_LR", "L2R_LR_DUAL"};

const char* solver_for(Loss loss) {
  switch (loss) {
    case Loss::kHinge:
      return "L2R_L1LOSS_SVC_DUAL";
    case Loss::kSquaredHinge:
      return "L2R_L2LOSS_SVC";
    case Loss::kLog:
      return "L2R_LR";
  }
  return "L2R_LR";
}

std::string_view next_word(std::string_view& text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  const std::size_t end = std::min(text.find_first_of(" \t", begin), text.size());
  const std::string_view word = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return word;
}

// The next word of a line as a finite number.
template <typename T>
std::optional<T> next_number(std::string_view& line) {
  const std::string_view word = next_word(line);
  T value{};
  const auto read = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || read.ec != std::errc{} || read.ptr != word.data() + word.size()) return {};
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return {};
  }
  return value;
}

class Parser {
 public:
  Parser(std::string_view name, std::string_view text) : name_(name), rest_(text) {}

  Result<LinearModel> parse() {
    DUNLIN_TRY(header());
    DUNLIN_TRY(weights());
    return std::move(model_);
  }

 private:
  Status header();
  Status header_line(std::string_view key, std::string_view values);
  Status weights();
  Status problem(std::string_view text) const {
    return {Code::kInvalidArgument, fmt::format("{}:{}: {}", name_, line_, text)};
  }
  template <typename T>
  Status read(std::string_view key, std::string_view& values, T& target) {
    const auto number = next_number<T>(values);
    if (!number) return problem(fmt::format("'{}' needs a number", key));
    target = *number;
    return Status::ok();
  }
  std::string_view take_line() {
    ++line_;
    return next_line(rest_);
  }

  std::string_view name_;
  std::string_view rest_;
  std::size_t line_ = 0;
  LinearModel model_;
  bool has_labels_ = false;
};

Status Parser::header() {
  while (!rest_.empty()) {
    std::string_view line = take_line();
    const std::string_view key = next_word(line);
    if (key != "w") {
      DUNLIN_TRY(header_line(key, line));
      continue;
    }
    if (model_.solver.empty()) return problem("the model names no 'solver_type'");
    if (!has_labels_) return problem("the model names no 'label'");
    if (model_.features == 0) return problem("the model has no features ('nr_feature')");
    return Status::ok();
  }
  ++line_;
  return problem("is no model in LIBLINEAR's format: it has no line 'w'");
}

Status Parser::header_line(std::string_view key, std::string_view values) {
  if (key == "solver_type") {
    model_.solver = next_word(values);
    if (std::ranges::find(kSolvers, model_.solver) != std::end(kSolvers)) return Status::ok();
    return problem(
        fmt::format("solver '{}' does not train a classifier of two classes", model_.solver));
  }
  if (key == "nr_class") {
    int classes = 0;
    DUNLIN_TRY(read(key, values, classes));
    if (classes == 2) return Status::ok();
    return problem(fmt::format("a model of {} classes; only models of 2 are known", classes));
  }
  if (key == "label") {
    has_labels_ = true;
    DUNLIN_TRY(read(key, values, model_.labels[0]));
    DUNLIN_TRY(read(key, values, model_.labels[1]));
    if (model_.labels[0] != model_.labels[1]) return Status::ok();
    return problem("both classes have the same label");
  }
  if (key == "nr_feature") return read(key, values, model_.features);
  if (key == "bias") return read(key, values, model_.bias);
  return problem(fmt::format("'{}' is no part of a model in LIBLINEAR's format", key));
}

Status Parser::weights() {
  const std::size_t count = std::size_t{model_.features} + (model_.bias >= 0 ? 1 : 0);
  while (!rest_.empty()) {
    std::string_view line = take_line();
    if (line.find_first_not_of(" \t") == line.npos) continue;
    const auto weight = next_number<double>(line);
    if (!weight || !next_word(line).empty()) return problem("expected one weight");
    if (model_.weights.size() == count) {
      return problem(fmt::format("more weights than {}", count));
    }
    model_.weights.push_back(*weight);
  }
  if (model_.weights.size() == count) return Status::ok();
  return problem(fmt::format("the file ends after {} of {} weights", model_.weights.size(), count));
}

}  // namespace

double LinearModel::decision(const Row& row) const {
  double sum = bias >= 0 ? bias * weights.back() : 0;
  for (std::size_t i = 0; i < row.indices.size(); ++i) {
    sum += weights[row.indices[i]] * row.values[i];
  }
  return sum;
}

LinearModel make_model(Loss loss, const Dataset& data, double bias, std::vector<double> weights) {
  LinearModel model;
  model.solver = solver_for(loss);
  // The thresholds 0, 0.5 and 1.5 lie between the labels.
  const int positive = static_cast<int>(std::floor(data.label_threshold)) + 1;
  model.labels = {positive, data.label_threshold == 0 ? -1 : positive - 1};
  model.features = data.features;
  model.bias = bias;
  model.weights = std::move(weights);
  return model;
}

std::string model_text(const LinearModel& model) {
  std::string text = fmt::format(
      "solver_type {}\nnr_class 2\nlabel {} {}\nnr_feature {}\nbias {:.17g}\nw\n", model.solver,
      model.labels[0], model.labels[1], model.features, model.bias >= 0 ? model.bias : -1.0);
  for (const double weight : model.weights) {
    fmt::format_to(std::back_inserter(text), "{:.17g}\n", weight);
  }
  return text;
}

Result<LinearModel> parse_model(std::string_view name, std::string_view text) {
  return Parser(name, text).parse();
}

Status check_model_path(const std::string& path) {
  return path.empty() ? Status::ok() : files::Destination::find(path).status();
}

Status save_model(const std::string& path, const LinearModel& model) {
  const std::string text = model_text(model);
  return replace_file(path, text, {.is_durable = true});
}

Result<LinearModel> load_model(const std::string& path) {
  DUNLIN_ASSIGN(const InputFile file, InputFile::open(path));
  return parse_model(path, file.bytes());
}

}  // namespace dunlin::svm
