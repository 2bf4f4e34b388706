// Compares with LIBLINEAR, if the build found it: the objective is the same, and it reads our
// models.
#include <gtest/gtest.h>

#if DUNLIN_HAVE_LIBLINEAR

#include <cstdio>
#include <filesystem>
#include <memory>

#include "apps/logreg/admm.h"
#include "apps/svm/libsvm_reader.h"
#include "apps/svm/linear_model.h"
#include "tests/apps/liblinear_support.h"
#include "tests/apps/logreg_support.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"

namespace dunlin::logreg {
namespace {

using testing::TheirModel;
using testing::TheirProblem;

// Our objective at their solution. Their weights are those of the class that came first.
double objective_of(const ::model& theirs, const Design& design, double cost) {
  Vector weights(theirs.w, theirs.w + design.columns());
  if (theirs.label[0] < 0) {
    for (double& weight : weights) weight = -weight;
  }
  return 0.5 * dot(weights, weights) + loss_of(design, cost, weights);
}

void expect_the_same(const svm::Dataset& data, double cost, double bias) {
  const Design design(data, bias);
  const auto ours = solve_whole(design, cost, 1e-10);
  ASSERT_TRUE(ours.is_ok()) << ours.status().to_string();
  const TheirModel theirs = TheirProblem(data, bias).solve(L2R_LR, cost);
  const double objective = objective_of(*theirs, design, cost);
  const double difference = (objective - ours->report.value) / ours->report.value;
  std::printf("C %g, bias %g: ours %.14g, theirs - ours %.2e of it\n", cost, bias,
              ours->report.value, difference);
  // Theirs may be a little higher, since their solver stops when the function no longer falls, but
  // not lower.
  EXPECT_LT(difference, 1e-8);
  EXPECT_GT(difference, -1e-13);
}

TEST(Liblinear, FindsOurObjectiveOnGeneratedData) {
  for (const double cost : {0.01, 1.0, 30.0}) {
    for (const double bias : {-1.0, 1.0}) expect_the_same(generated(2000, 300), cost, bias);
  }
}

TEST(Liblinear, FindsOurObjectiveOnRealData) {
  bool is_any_there = false;
  for (const char* name : {"a9a/a9a.xz", "phishing/phishing.xz"}) {
    const std::string path = testing::data_set(name);
    if (!std::filesystem::exists(path)) continue;
    const auto data = svm::read_libsvm(path);
    if (data.status().code() == Code::kUnavailable) GTEST_SKIP() << data.status().message();
    ASSERT_TRUE(data.is_ok()) << data.status().to_string();
    is_any_there = true;
    SCOPED_TRACE(name);
    expect_the_same(*data, 1, -1);
  }
  if (!is_any_there) GTEST_SKIP() << "neither a9a nor phishing in " << testing::data_set("");
}

TEST(Liblinear, ReadsOurModelsAndPredictsTheSame) {
  for (const double bias : {-1.0, 0.5}) {
    const svm::Dataset data = generated(400, 50);
    const Design design(data, bias);
    const Vector model = solve_whole(design, 1, 1e-8)->model;
    const testing::TempFolder folder;
    const std::string path = folder.file("model");
    ASSERT_TRUE(svm::save_model(path, svm::make_model(svm::Loss::kLog, data, bias, model)).is_ok());

    const TheirModel read(load_model(path.c_str()));
    ASSERT_NE(read, nullptr);
    EXPECT_EQ(get_nr_feature(read.get()), 50);
    EXPECT_EQ(get_nr_class(read.get()), 2);
    const TheirProblem rows(data, bias);
    std::uint64_t right = 0;
    for (std::size_t i = 0; i < data.rows(); ++i) {
      double decision = 0;
      right += predict_values(read.get(), rows.row(i), &decision) == data.labels[i] ? 1 : 0;
      ASSERT_NEAR(decision, design.times(i, model), 1e-12) << i;
    }
    EXPECT_EQ(right, design.count_right(model));
    EXPECT_GT(right, 300U);
  }
}

}  // namespace
}  // namespace dunlin::logreg

#else

TEST(Liblinear, FindsOurObjective) {
  GTEST_SKIP() << "this build has no LIBLINEAR (Debian: liblinear-dev)";
}

#endif
