// Tests with real data sets. Skipped if the build's `data` directory does not hold them.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "apps/svm/evaluate.h"
#include "apps/svm/learner.h"
#include "apps/svm/libsvm_reader.h"
#include "tests/support/paths.h"

namespace dunlin::svm {
namespace {

struct Expected {
  const char* train;
  const char* test;
  std::size_t rows;
  std::uint32_t features;
  std::size_t values;
  std::size_t test_rows;
  Loss loss;
  double objective;   // at most, after ten passes with lambda = 1e-4
  double test_error;  // at most
};

class RealData : public ::testing::TestWithParam<Expected> {};

TEST_P(RealData, IsReadAndLearnt) {
  const Expected& expected = GetParam();
  const std::string train_path = testing::data_set(expected.train);
  if (!std::filesystem::exists(train_path)) GTEST_SKIP() << train_path << " is not there";
  const auto read = read_libsvm(train_path);
  if (read.status().code() == Code::kUnavailable) GTEST_SKIP() << read.status().message();
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  const Dataset& train = read.value();
  EXPECT_EQ(train.rows(), expected.rows);
  EXPECT_EQ(train.features, expected.features);
  EXPECT_EQ(train.values.size(), expected.values);

  LibsvmOptions like_train;
  like_train.features = train.features;
  like_train.drop_beyond = true;
  like_train.label_threshold = train.label_threshold;
  const Dataset test = read_libsvm(testing::data_set(expected.test), like_train).value();
  EXPECT_EQ(test.rows(), expected.test_rows);

  LearnerOptions options{.loss = expected.loss};
  options.eta0 = find_eta0(train, options).value();
  std::vector<float> model(train.features + 1);
  Learner learner = Learner::create(model, train, options).value();
  learner.train(10 * train.rows());
  learner.materialize();
  EXPECT_LT(evaluate(model, train, options.loss, options.lambda).objective(), expected.objective);
  EXPECT_LT(evaluate(model, test, options.loss, options.lambda).error_rate(), expected.test_error);
}

INSTANTIATE_TEST_SUITE_P(, RealData,
                         ::testing::Values(Expected{"rcv1/rcv1sub_train.libsvm.xz",
                                                    "rcv1/rcv1sub_test.libsvm.xz", 19341, 47236,
                                                    1455412, 4408, Loss::kHinge, 0.134, 0.037},
                                           Expected{"a9a/a9a.xz", "a9a/a9a.t.xz", 32561, 123,
                                                    451592, 16281, Loss::kLog, 0.34, 0.16}),
                         [](const auto& instance) { return instance.index == 0 ? "Rcv1" : "A9a"; });

}  // namespace
}  // namespace dunlin::svm
