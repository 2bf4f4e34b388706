#include "tools/dunlin-sim/groups/learning_problem.h"

#include <algorithm>
#include <cmath>

#include "runtime/random.h"

namespace dunlin::simulate {
namespace {

constexpr std::size_t kExamples = 8192;
constexpr std::size_t kJudged = 1024;  // the size of the sample on which models are evaluated
constexpr std::size_t kClustersPerClass = 4;
// The standard deviation of the centers in each direction; that of examples around them is 1.
constexpr double kSpread = 0.75;
// Streams of random numbers, in addition to those of the workers' batches.
enum Stream : std::uint64_t { kCenters = 1, kDraws = 2, kInitial = 3, kBatches = 4 };

template <std::size_t Count>
void add_scaled(float factor, const float* __restrict from, float* __restrict to) {
  for (std::size_t i = 0; i < Count; ++i) to[i] += factor * from[i];
}

// The parts of a model or of a gradient.
template <typename T>
struct Parts {
  explicit Parts(std::span<T> model)
      : hidden_weights(model.data()),
        hidden_biases(hidden_weights + LearningProblem::kFeatures * LearningProblem::kHidden),
        output_weights(hidden_biases + LearningProblem::kHidden),
        output_biases(output_weights + LearningProblem::kHidden * LearningProblem::kClasses) {}
  T* hidden_weights;  // by feature, then by hidden unit
  T* hidden_biases;
  T* output_weights;  // by hidden unit, then by class
  T* output_biases;
};

struct Activations {
  float hidden[LearningProblem::kHidden];
  float shares[LearningProblem::kClasses];  // the probability of each class
};

void forward(const Parts<const float>& model, const float* features, Activations& made) {
  std::copy_n(model.hidden_biases, LearningProblem::kHidden, made.hidden);
  for (std::size_t i = 0; i < LearningProblem::kFeatures; ++i)
    add_scaled<LearningProblem::kHidden>(
        features[i], model.hidden_weights + i * LearningProblem::kHidden, made.hidden);
  std::copy_n(model.output_biases, LearningProblem::kClasses, made.shares);
  for (std::size_t j = 0; j < LearningProblem::kHidden; ++j) {
    made.hidden[j] = std::max(made.hidden[j], 0.0F);
    add_scaled<LearningProblem::kClasses>(
        made.hidden[j], model.output_weights + j * LearningProblem::kClasses, made.shares);
  }
  const float largest = *std::max_element(std::begin(made.shares), std::end(made.shares));
  float sum = 0;
  for (float& share : made.shares) sum += share = std::exp(share - largest);
  for (float& share : made.shares) share /= sum;
}

// Evaluates one example.
double cross_entropy(const Activations& made, std::size_t label) {
  // The share may be 0 when a model is certain and wrong.
  constexpr float kLeastShare = 1e-30F;
  return -std::log(std::max(made.shares[label], kLeastShare));
}

// `weight`: the weight of this example in the gradient.
void add_backward(const Parts<const float>& model, const float* features, std::size_t label,
                  float weight, Activations& made, const Parts<float>& gradient) {
  float* const wrong = made.shares;
  wrong[label] -= 1;
  for (float& error : made.shares) error *= weight;
  add_scaled<LearningProblem::kClasses>(1, wrong, gradient.output_biases);
  float hidden_error[LearningProblem::kHidden];
  for (std::size_t j = 0; j < LearningProblem::kHidden; ++j) {
    const std::size_t row = j * LearningProblem::kClasses;
    add_scaled<LearningProblem::kClasses>(made.hidden[j], wrong, gradient.output_weights + row);
    float sum = 0;
    for (std::size_t k = 0; k < LearningProblem::kClasses; ++k)
      sum += wrong[k] * model.output_weights[row + k];
    hidden_error[j] = made.hidden[j] > 0 ? sum : 0;
  }
  add_scaled<LearningProblem::kHidden>(1, hidden_error, gradient.hidden_biases);
  for (std::size_t i = 0; i < LearningProblem::kFeatures; ++i)
    add_scaled<LearningProblem::kHidden>(features[i], hidden_error,
                                         gradient.hidden_weights + i * LearningProblem::kHidden);
}

}  // namespace

LearningProblem::LearningProblem(std::uint64_t seed) : seed_(seed), examples_(kExamples) {
  Random random(seed, kCenters);
  std::vector<float> centers(kClasses * kClustersPerClass * kFeatures);
  for (float& center : centers) center = static_cast<float>(kSpread * random.normal());
  Random draws(seed, kDraws);
  for (Example& example : examples_) {
    const std::size_t cluster = draws.below(kClasses * kClustersPerClass);
    example.label = cluster / kClustersPerClass;
    for (std::size_t i = 0; i < kFeatures; ++i)
      example.features[i] = centers[cluster * kFeatures + i] + static_cast<float>(draws.normal());
  }
}

std::vector<float> LearningProblem::initial_model() const {
  Random random(seed_, kInitial);
  std::vector<float> model(kParameters);
  const Parts<float> parts(model);
  // The usual initialization of rectified units (He et al., 2015), which keeps the size of signals.
  const auto fill = [&](float* weights, std::size_t from, std::size_t to) {
    const double scale = std::sqrt(2.0 / static_cast<double>(from));
    for (std::size_t i = 0; i < from * to; ++i)
      weights[i] = static_cast<float>(scale * random.normal());
  };
  fill(parts.hidden_weights, kFeatures, kHidden);
  fill(parts.output_weights, kHidden, kClasses);
  return model;
}

double LearningProblem::gradient(std::span<const float> model, Rank worker, std::uint64_t iteration,
                                 std::size_t batch, std::span<float> gradient) const {
  std::fill(gradient.begin(), gradient.end(), 0.0F);
  const Parts<const float> weights(model);
  const Parts<float> sums(gradient);
  Random random(seed_ + kBatches, worker.index(), iteration);
  Activations made;
  double sum = 0;
  for (std::size_t i = 0; i < batch; ++i) {
    const Example& example = examples_[random.below(kExamples)];
    forward(weights, example.features, made);
    sum += cross_entropy(made, example.label);
    add_backward(weights, example.features, example.label, 1 / static_cast<float>(batch), made,
                 sums);
  }
  return sum / static_cast<double>(batch);
}

double LearningProblem::loss(std::span<const float> model) const {
  const Parts<const float> weights(model);
  Activations made;
  double sum = 0;
  for (std::size_t i = 0; i < kJudged; ++i) {
    forward(weights, examples_[i].features, made);
    sum += cross_entropy(made, examples_[i].label);
  }
  return sum / kJudged;
}

}  // namespace dunlin::simulate
