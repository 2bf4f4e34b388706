// Compares with LIBLINEAR, if the build found it: objectives on real data, and models in both
// directions.
#include <gtest/gtest.h>

#if DUNLIN_HAVE_LIBLINEAR

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/svm/average.h"
#include "apps/svm/evaluate.h"
#include "apps/svm/generator.h"
#include "apps/svm/learner.h"
#include "apps/svm/libsvm_reader.h"
#include "apps/svm/linear_model.h"
#include "tests/apps/liblinear_support.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"

namespace dunlin::svm {
namespace {

using testing::TheirModel;
using testing::TheirProblem;

int solver_for(Loss loss) {
  if (loss == Loss::kLog) return L2R_LR;
  return loss == Loss::kHinge ? L2R_L1LOSS_SVC_DUAL : L2R_L2LOSS_SVC;
}

// LIBLINEAR minimizes 1/2 |w|^2 + C sum loss, and its squared hinge has no factor 1/2.
double cost_for(Loss loss, double lambda, std::size_t rows) {
  const double cost = 1 / (lambda * static_cast<double>(rows));
  return loss == Loss::kSquaredHinge ? cost / 2 : cost;
}

// Our weights and bias for their solution.
std::vector<float> weights_of(const ::model& theirs, const Dataset& data, double bias) {
  const double sign = theirs.label[0] < 0 ? -1 : 1;
  std::vector<float> weights(data.features + 1);
  for (std::size_t i = 0; i < data.features; ++i) {
    weights[i] = static_cast<float>(sign * theirs.w[i]);
  }
  if (bias >= 0) weights.back() = static_cast<float>(sign * bias * theirs.w[data.features]);
  return weights;
}

// The lowest value of our objective, whose regularizer leaves out the bias, at LIBLINEAR's
// solutions: without a bias, and with one that is regularized.
double their_objective(const Dataset& data, Loss loss, double lambda) {
  double lowest = INFINITY;
  for (const double bias : {-1.0, 1.0}) {
    const TheirModel theirs =
        TheirProblem(data, bias).solve(solver_for(loss), cost_for(loss, lambda, data.rows()), 1e-3);
    const auto weights = weights_of(*theirs, data, bias);
    lowest = std::min(lowest, evaluate(weights, data, loss, lambda).objective());
  }
  return lowest;
}

// Trains as dunlin-svm --average does in one process, with its defaults.
double our_objective(const Dataset& data, Loss loss, double lambda) {
  LearnerOptions options{.loss = loss, .lambda = lambda};
  options.eta0 = find_eta0(data, options).value();
  std::vector<float> model(data.features + 1);
  Learner learner = Learner::create(model, data, options).value();
  ModelAverage average;
  for (std::size_t examples = 0; examples < 20 * data.rows(); examples += 100) {
    learner.train(100);
    learner.materialize();
    average.add(model);
  }
  return evaluate(average.average(), data, loss, lambda).objective();
}

class SvmAndLiblinear : public ::testing::TestWithParam<const char*> {};

TEST_P(SvmAndLiblinear, FindTheSameObjective) {
  const std::string path = testing::data_set(GetParam());
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto read = read_libsvm(path);
  if (read.status().code() == Code::kUnavailable) GTEST_SKIP() << read.status().message();
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  const Dataset& data = *read;
  // The default lambda, and the one that corresponds to LIBLINEAR's default C of 1.
  for (const double lambda : {1e-4, 1 / static_cast<double>(data.rows())}) {
    for (const Loss loss : {Loss::kHinge, Loss::kSquaredHinge, Loss::kLog}) {
      const double ours = our_objective(data, loss, lambda);
      const double theirs = their_objective(data, loss, lambda);
      std::printf("%s, lambda %.3g: ours %.6f, LIBLINEAR's %.6f (%+.2f %%)\n", to_string(loss),
                  lambda, ours, theirs, 100 * (ours / theirs - 1));
      EXPECT_LT(ours, 1.01 * theirs) << to_string(loss) << ", lambda " << lambda;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, SvmAndLiblinear, ::testing::Values("a9a/a9a.xz", "phishing/phishing.xz"),
                         [](const auto& instance) {
                           return instance.index == 0 ? "A9a" : "Phishing";
                         });

TEST(LiblinearModel, IsReadAndPredictsTheSame) {
  const Dataset data = generate({.rows = 400, .features = 50, .nonzeros_per_row = 8}).value();
  const testing::TempFolder folder;
  const std::string path = folder.file("model");
  for (const double bias : {-1.0, 0.5}) {
    const TheirProblem rows(data, bias);
    const TheirModel theirs = rows.solve(L2R_L1LOSS_SVC_DUAL, 1, 1e-3);
    ASSERT_EQ(::save_model(path.c_str(), theirs.get()), 0);
    const LinearModel ours = load_model(path).value();
    EXPECT_EQ(ours.features, 50U);
    for (std::size_t i = 0; i < data.rows(); ++i) {
      double decision = 0;
      const double label = ::predict_values(theirs.get(), rows.row(i), &decision);
      ASSERT_NEAR(ours.decision(data.row(i)), decision, 1e-9) << i;
      ASSERT_EQ(ours.labels[decision > 0 ? 0 : 1], label) << i;
    }
  }
}

}  // namespace
}  // namespace dunlin::svm

#else

TEST(SvmAndLiblinear, FindTheSameObjective) {
  GTEST_SKIP() << "this build has no LIBLINEAR (Debian: liblinear-dev)";
}

#endif
