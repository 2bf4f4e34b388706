// Against LIBLINEAR, where the build found it: the same objective, and models that it can read.
#include <gtest/gtest.h>

#if DUNLIN_HAVE_LIBLINEAR

#if __has_include(<linear.h>)
#include <linear.h>
#else
#include <liblinear/linear.h>
#endif

#include <cstdio>
#include <filesystem>
#include <memory>

#include "apps/logreg/admm.h"
#include "apps/logreg/model_file.h"
#include "apps/svm/libsvm_reader.h"
#include "tests/apps/logreg_support.h"
#include "tests/support/temp_folder.h"

namespace dunlin::logreg {
namespace {

struct FreeModel {
  void operator()(::model* theirs) const { free_and_destroy_model(&theirs); }
};
using TheirModel = std::unique_ptr<::model, FreeModel>;

// A data set as LIBLINEAR takes it, with the bias as its last feature.
class TheirProblem {
 public:
  TheirProblem(const svm::Dataset& data, double bias)
      : labels_(data.labels.begin(), data.labels.end()) {
    const auto features = static_cast<int>(data.features);
    nodes_.reserve(data.indices.size() + 2 * data.rows());
    for (std::size_t i = 0; i < data.rows(); ++i) {
      const svm::Row row = data.row(i);
      rows_.push_back(nodes_.data() + nodes_.size());
      for (std::size_t k = 0; k < row.indices.size(); ++k) {
        nodes_.push_back({static_cast<int>(row.indices[k]) + 1, row.values[k]});
      }
      if (bias >= 0) nodes_.push_back({features + 1, bias});
      nodes_.push_back({-1, 0});
    }
    problem_.l = static_cast<int>(data.rows());
    problem_.n = features + (bias >= 0 ? 1 : 0);
    problem_.y = labels_.data();
    problem_.x = rows_.data();
    problem_.bias = bias;
  }

  TheirModel solve(double cost) const {
    ::parameter options{};
    options.solver_type = L2R_LR;
    options.C = cost;
    options.eps = 1e-10;
    options.p = 0.1;
    EXPECT_EQ(check_parameter(&problem_, &options), nullptr);
    set_print_string_function([](const char*) {});
    return TheirModel(train(&problem_, &options));
  }
  const ::feature_node* row(std::size_t i) const { return rows_[i]; }

 private:
  std::vector<double> labels_;
  std::vector<::feature_node> nodes_;
  std::vector<::feature_node*> rows_;
  ::problem problem_{};
};

// Of their solution, by our function; the weights are those of the class that came first.
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
  const TheirModel theirs = TheirProblem(data, bias).solve(cost);
  const double objective = objective_of(*theirs, design, cost);
  const double difference = (objective - ours->report.value) / ours->report.value;
  std::printf("C %g, bias %g: ours %.14g, theirs - ours %.2e of it\n", cost, bias,
              ours->report.value, difference);
  // Theirs may be a little higher, as it stops where its function no longer falls; not lower.
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
    const std::string path = (std::filesystem::path(DUNLIN_DATA_DIRECTORY) / name).string();
    if (!std::filesystem::exists(path)) continue;
    const auto data = svm::read_libsvm(path);
    if (data.status().code() == Code::kUnavailable) GTEST_SKIP() << data.status().message();
    ASSERT_TRUE(data.is_ok()) << data.status().to_string();
    is_any_there = true;
    SCOPED_TRACE(name);
    expect_the_same(*data, 1, -1);
  }
  if (!is_any_there) GTEST_SKIP() << "neither a9a nor phishing in " << DUNLIN_DATA_DIRECTORY;
}

TEST(Liblinear, ReadsOurModelsAndPredictsTheSame) {
  for (const double bias : {-1.0, 0.5}) {
    const svm::Dataset data = generated(400, 50);
    const Design design(data, bias);
    const Vector model = solve_whole(design, 1, 1e-8)->model;
    const testing::TempFolder folder;
    const std::string path = folder.file("model");
    const std::string text = model_text(data, bias, model);
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "w"),
                                                         std::fclose);
    ASSERT_NE(file, nullptr);
    ASSERT_EQ(std::fwrite(text.data(), 1, text.size(), file.get()), text.size());
    file.reset();

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
