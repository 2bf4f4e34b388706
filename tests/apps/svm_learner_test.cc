#include "apps/svm/learner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "apps/svm/evaluate.h"
#include "apps/svm/generator.h"
#include "runtime/random.h"

namespace dunlin::svm {
namespace {

const Dataset& small_data() {
  static const Dataset data =
      generate({.rows = 600, .features = 300, .nonzeros_per_row = 15, .flipped = 0.05}).value();
  return data;
}

std::vector<float> trained(const Dataset& data, const LearnerOptions& options,
                           std::uint64_t examples) {
  std::vector<float> model(data.features + 1);
  Learner learner = Learner::create(model, data, options).value();
  learner.train(examples);
  learner.materialize();
  return model;
}

// A plain version of the same algorithm: dense, in double, without a scale.
std::vector<double> plain_sgd(const Dataset& data, const LearnerOptions& options, int epochs) {
  std::vector<double> w(data.features);
  double bias = 0;
  double t = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    std::vector<std::uint32_t> order(data.rows());
    std::iota(order.begin(), order.end(), 0U);
    Random random(options.seed, epoch, options.shard);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (const std::uint32_t i : order) {
      const Row row = data.row(i);
      const double eta = options.eta0 / (1 + options.lambda * options.eta0 * t);
      double score = bias;
      for (std::size_t k = 0; k < row.indices.size(); ++k)
        score += w[row.indices[k]] * row.values[k];
      const double pull = pull_at(options.loss, row.label * score) * row.label;
      for (double& weight : w) weight *= 1 - eta * options.lambda;
      for (std::size_t k = 0; k < row.indices.size(); ++k) {
        w[row.indices[k]] += eta * pull * row.values[k];
      }
      if (options.has_bias) bias += 0.01 * eta * pull;
      t += static_cast<double>(options.t_step);
    }
  }
  w.push_back(bias);
  return w;
}

// The optimum for hinge loss without a bias: coordinate ascent in the dual, until the gap to the
// primal objective, which bounds its distance from the optimum, is below `gap`.
double optimum_without_bias(const Dataset& data, double lambda, double gap) {
  const double n = static_cast<double>(data.rows());
  std::vector<double> alpha(data.rows());
  std::vector<double> w(data.features);
  const auto score_of = [&](const Row& row) {
    double score = 0;
    for (std::size_t k = 0; k < row.indices.size(); ++k) score += w[row.indices[k]] * row.values[k];
    return score;
  };
  for (;;) {
    for (std::size_t i = 0; i < data.rows(); ++i) {
      const Row row = data.row(i);
      double square = 0;
      for (const float value : row.values) square += double{value} * value;
      const double rise = (1 - row.label * score_of(row)) * lambda * n / square;
      const double next = std::clamp(alpha[i] + rise, 0.0, 1.0);
      const double step = (next - alpha[i]) * row.label / (lambda * n);
      for (std::size_t k = 0; k < row.indices.size(); ++k) {
        w[row.indices[k]] += step * row.values[k];
      }
      alpha[i] = next;
    }
    const double norm = lambda / 2 * std::inner_product(w.begin(), w.end(), w.begin(), 0.0);
    double loss = 0;
    for (std::size_t i = 0; i < data.rows(); ++i) {
      loss += loss_at(Loss::kHinge, data.labels[i] * score_of(data.row(i)));
    }
    const double primal = norm + loss / n;
    const double dual = std::accumulate(alpha.begin(), alpha.end(), 0.0) / n - norm;
    if (primal - dual < gap) return primal;
  }
}

TEST(Loss, PullIsTheNegativeDerivative) {
  for (const Loss loss : {Loss::kHinge, Loss::kSquaredHinge, Loss::kLog}) {
    for (double z = -40.03; z < 40; z += 0.17) {
      const double h = 1e-6;
      const double slope = (loss_at(loss, z + h) - loss_at(loss, z - h)) / (2 * h);
      EXPECT_NEAR(pull_at(loss, z), -slope, 1e-6) << z;
    }
    EXPECT_TRUE(std::isfinite(loss_at(loss, -1e6)));
    EXPECT_EQ(pull_at(loss, 1e6), 0);
  }
}

TEST(Evaluate, CountsLossNormAndErrors) {
  Dataset data;
  data.features = 2;
  data.row_begin = {0, 1, 2, 3};
  data.indices = {0, 1, 0};
  data.values = {1, 1, 0.25F};
  data.labels = {1, 1, -1};
  const std::vector<float> model = {2, -1, 0.5F};  // scores 2.5, -0.5, 1
  const Evaluation result = evaluate(model, data, Loss::kHinge, 0.1);
  EXPECT_EQ(result.wrong, 2U);
  EXPECT_DOUBLE_EQ(result.loss_sum, 0 + 1.5 + 2);
  EXPECT_DOUBLE_EQ(result.regularizer, 0.05 * 5);
  EXPECT_DOUBLE_EQ(result.objective(), 0.25 + 3.5 / 3);
  EXPECT_DOUBLE_EQ(evaluate(model, data, Loss::kHinge, 0.1, 1).mean_loss(), 0);
}

TEST(Learner, FollowsThePlainAlgorithmForEveryLoss) {
  for (const Loss loss : {Loss::kHinge, Loss::kSquaredHinge, Loss::kLog}) {
    for (const std::uint64_t t_step : {1U, 4U}) {
      const LearnerOptions options{
          .loss = loss, .lambda = 1e-3, .eta0 = 1, .shard = 3, .t_step = t_step};
      const auto model = trained(small_data(), options, 2 * small_data().rows());
      const auto plain = plain_sgd(small_data(), options, 2);
      // A margin that rounds to the other side of 1 changes a step of the hinge loss.
      const double tolerance = loss == Loss::kHinge ? 0.02 : 1e-3;
      for (std::size_t i = 0; i < model.size(); ++i) {
        EXPECT_NEAR(model[i], plain[i], tolerance) << i;
      }
    }
  }
}

TEST(Learner, ReachesTheOptimum) {
  const double lambda = 1e-3;
  const double optimum = optimum_without_bias(small_data(), lambda, 1e-6);
  LearnerOptions options{.lambda = lambda, .has_bias = false};
  options.eta0 = find_eta0(small_data(), options).value();
  const auto model = trained(small_data(), options, 300 * small_data().rows());
  const double reached = evaluate(model, small_data(), options.loss, lambda).objective();
  EXPECT_GT(reached, optimum - 1e-5);
  EXPECT_LT(reached, optimum * 1.01);
}

// A scale that falls fast is folded in during the training, which does not change the weights.
TEST(Learner, LargeShrinkageDoesNotOverflow) {
  const LearnerOptions options{.loss = Loss::kLog, .lambda = 0.5, .eta0 = 1.9};
  const auto model = trained(small_data(), options, 20 * small_data().rows());
  const auto plain = plain_sgd(small_data(), options, 20);
  for (std::size_t i = 0; i < model.size(); ++i) EXPECT_NEAR(model[i], plain[i], 1e-4);
}

TEST(Learner, IsDeterministicAndItsOrderDependsOnSeedAndShard) {
  const LearnerOptions options{.eta0 = 1};
  const auto model = trained(small_data(), options, 1000);
  EXPECT_EQ(trained(small_data(), options, 1000), model);
  EXPECT_NE(trained(small_data(), {.eta0 = 1, .seed = 2}, 1000), model);
  EXPECT_NE(trained(small_data(), {.eta0 = 1, .shard = 1}, 1000), model);
}

TEST(Learner, GoesOnFromAModelThatWasReplaced) {
  const LearnerOptions options{.eta0 = 1};
  std::vector<float> model(small_data().features + 1);
  Learner learner = Learner::create(model, small_data(), options).value();
  learner.train(100);
  learner.materialize();
  std::fill(model.begin(), model.end(), 0.0F);
  learner.train(1);
  learner.materialize();
  EXPECT_EQ(learner.examples(), 101U);
  const auto touched = std::count_if(model.begin(), model.end(), [](float w) { return w != 0; });
  EXPECT_GT(touched, 1);
  EXPECT_LE(touched, 100);
}

TEST(Learner, RefusesWhatCannotWork) {
  const auto error_of = [](std::size_t size, LearnerOptions options) {
    std::vector<float> model(size);
    return std::string(Learner::create(model, small_data(), options).status().message());
  };
  EXPECT_EQ(error_of(300, {.eta0 = 1}),
            "the model has 300 elements; 300 features and a bias need 301");
  EXPECT_EQ(error_of(301, {.lambda = 0, .eta0 = 1}), "lambda is 0: it has to be above 0");
  EXPECT_EQ(error_of(301, {.lambda = 0.1}),
            "eta0 is 0: it has to be above 0 and below 1/lambda = 10");
  EXPECT_EQ(error_of(301, {.lambda = 0.1, .eta0 = 10}),
            "eta0 is 10: it has to be above 0 and below 1/lambda = 10");
  EXPECT_EQ(error_of(301, {.eta0 = 1, .t_step = 0}), "t_step is 0: the rate would never fall");
  std::vector<float> model(2);
  Dataset empty;
  empty.features = 1;
  EXPECT_EQ(Learner::create(model, empty, {.eta0 = 1}).status().message(),
            "there are no rows to train on");
}

TEST(FindEta0, PicksTheBestPowerOfTwoNearby) {
  const LearnerOptions options{.lambda = 1e-3};
  const double eta0 = find_eta0(small_data(), options).value();
  EXPECT_EQ(std::exp2(std::round(std::log2(eta0))), eta0);
  const auto cost = [&](double eta) {
    std::vector<float> model(small_data().features + 1);
    LearnerOptions fixed = options;
    fixed.eta0 = eta;
    Learner learner = Learner::create(model, small_data(), fixed).value();
    for (std::size_t i = 0; i < small_data().rows(); ++i) learner.step(i, eta);
    learner.materialize();
    return evaluate(model, small_data(), options.loss, options.lambda).objective();
  };
  EXPECT_LE(cost(eta0), cost(eta0 * 2));
  EXPECT_LE(cost(eta0), cost(eta0 / 2));
}

// Rows ten times as long need steps of about a hundredth. A large lambda bounds the rate.
TEST(FindEta0, FollowsTheScaleOfTheDataAndStaysBelowTheLimit) {
  Dataset longer = small_data();
  for (float& value : longer.values) value *= 16;
  const LearnerOptions options{.loss = Loss::kLog, .lambda = 1e-3};
  EXPECT_LT(find_eta0(longer, options).value(), find_eta0(small_data(), options).value() / 4);
  EXPECT_LT(find_eta0(small_data(), {.lambda = 100}).value(), 1.0 / 100);
  EXPECT_FALSE(find_eta0(small_data(), {.lambda = -1}).is_ok());
}

// With long rows, a step of the squared hinge loss overshoots so far that the model becomes NaN.
TEST(FindEta0, PassesOverRatesWithWhichTheModelRunsAway) {
  Dataset longer = small_data();
  for (float& value : longer.values) value *= 16;
  LearnerOptions options{.loss = Loss::kSquaredHinge, .lambda = 1e-3};
  options.eta0 = find_eta0(longer, options).value();
  EXPECT_LT(options.eta0, 0.1);
  std::vector<float> model(longer.features + 1);
  const double before = evaluate(model, longer, options.loss, options.lambda).objective();
  Learner learner = Learner::create(model, longer, options).value();
  learner.train(5 * longer.rows());
  learner.materialize();
  EXPECT_LT(evaluate(model, longer, options.loss, options.lambda).objective(), before);
}

}  // namespace
}  // namespace dunlin::svm
