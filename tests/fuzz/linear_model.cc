// Models in LIBLINEAR's text format (apps/svm/linear_model.h).
#include "apps/svm/linear_model.h"

#include <algorithm>
#include <cmath>

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace svm;

void check(const Exact& text) {
  const auto model = parse_model("f", text.text());
  if (!model) return;
  FUZZ_CHECK(model->features > 0 && model->labels[0] != model->labels[1]);
  FUZZ_CHECK(model->weights.size() == std::size_t{model->features} + (model->bias >= 0 ? 1 : 0));
  FUZZ_CHECK(std::ranges::all_of(model->weights, [](double w) { return std::isfinite(w); }));
  LinearModel expected = *model;
  if (expected.bias < 0) expected.bias = -1;  // any negative number says that there is none
  const auto again = parse_model("f", model_text(*model));
  FUZZ_CHECK(again.is_ok() && *again == expected);
  const std::uint32_t indices[] = {0, model->features - 1};
  const float values[] = {1, 2};
  const std::size_t count = model->features > 1 ? 2 : 1;
  (void)model->decision({std::span(indices).first(count), std::span(values).first(count), 1});
}

}  // namespace

std::vector<Seed> seeds() {
  LinearModel plain;
  plain.solver = "L2R_LR";
  plain.features = 3;
  plain.weights = {0.5, -1e-17, 3};
  LinearModel with_bias = plain;
  with_bias.solver = "L2R_L2LOSS_SVC";
  with_bias.labels = {2, 1};
  with_bias.bias = 1;
  with_bias.weights.push_back(7);
  return {text_seed("plain", model_text(plain)), text_seed("bias", model_text(with_bias))};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dunlin::fuzz::check(dunlin::fuzz::Exact(std::as_bytes(std::span(data, size))));
  return 0;
}
