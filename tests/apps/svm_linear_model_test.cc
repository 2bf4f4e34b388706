#include "apps/svm/linear_model.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/svm/libsvm_reader.h"
#include "tests/support/temp_folder.h"

namespace dunlin::svm {
namespace {

std::string with(const std::string& line, const std::string& weights = "0.5\n-2\n") {
  std::string text = "solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 2\nbias -1\n";
  const std::string key = line.substr(0, line.find(' ') + 1);
  if (const auto place = text.find(key); !key.empty() && place != text.npos) {
    text.replace(place, text.find('\n', place) + 1 - place, line);
  } else {
    text += line;
  }
  return text + "w\n" + weights;
}

std::string problem_of(const std::string& text) {
  const auto model = parse_model("m", text);
  EXPECT_TRUE(model || model.status().code() == Code::kInvalidArgument);
  return std::string(model.status().message());
}

TEST(LinearModel, HasTheLabelsOfTheTrainingFile) {
  Dataset data;
  data.features = 2;
  EXPECT_EQ(model_text(make_model(Loss::kLog, data, -1, {0.5, -2})),
            "solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 2\nbias -1\nw\n0.5\n-2\n");
  data.label_threshold = 0.5;
  EXPECT_EQ(model_text(make_model(Loss::kHinge, data, 1, {0.5, -2, 3})),
            "solver_type L2R_L1LOSS_SVC_DUAL\nnr_class 2\nlabel 1 0\nnr_feature 2\nbias 1\nw\n"
            "0.5\n-2\n3\n");
  data.label_threshold = 1.5;
  EXPECT_EQ(make_model(Loss::kSquaredHinge, data, -1, {0.5, -2}).labels, (std::array{2, 1}));
}

TEST(LinearModel, ReadsBackWhatWasSaved) {
  Dataset data;
  data.features = 3;
  const LinearModel model = make_model(Loss::kHinge, data, 0.5, {1.0 / 3, -1e-300, 0, 1e10});
  const testing::TempFolder folder;
  ASSERT_TRUE(save_model(folder.file("model"), model).is_ok());
  EXPECT_EQ(load_model(folder.file("model")).value(), model);
  EXPECT_EQ(load_model(folder.file("absent")).status().code(), Code::kNotFound);
}

// LIBLINEAR writes a space behind each weight, and first the label that came first in the data.
TEST(LinearModel, DecidesAsLiblinearDoes) {
  const LinearModel model = parse_model("m", with("label -1 1\n", "0.5 \n-2 \n")).value();
  EXPECT_EQ(model.labels, (std::array{-1, 1}));
  const Dataset data = parse_libsvm("data", "+1 1:4 2:0.5\n-1 2:1\n", {.features = 2}).value();
  EXPECT_DOUBLE_EQ(model.decision(data.row(0)), 1);
  EXPECT_DOUBLE_EQ(model.decision(data.row(1)), -2);
  const LinearModel biased = parse_model("m", with("bias 2\n", "0.5\n-2\n3\n")).value();
  EXPECT_DOUBLE_EQ(biased.decision(data.row(1)), 4);
}

TEST(LinearModel, SaysWhatIsWrong) {
  EXPECT_EQ(problem_of(""), "m:1: is no model in LIBLINEAR's format: it has no line 'w'");
  EXPECT_EQ(problem_of("+1 1:2\n"), "m:1: '+1' is no part of a model in LIBLINEAR's format");
  EXPECT_EQ(problem_of(with("solver_type MCSVM_CS\n")),
            "m:1: solver 'MCSVM_CS' does not train a classifier of two classes");
  EXPECT_EQ(problem_of(with("nr_class 3\n")),
            "m:2: a model of 3 classes; only models of 2 are known");
  EXPECT_EQ(problem_of(with("label 1\n")), "m:3: 'label' needs a number");
  EXPECT_EQ(problem_of(with("label 1 1\n")), "m:3: both classes have the same label");
  EXPECT_EQ(problem_of(with("nr_feature many\n")), "m:4: 'nr_feature' needs a number");
  EXPECT_EQ(problem_of(with("nr_feature 0\n")), "m:6: the model has no features ('nr_feature')");
  EXPECT_EQ(problem_of(with("bias nan\n")), "m:5: 'bias' needs a number");
  EXPECT_EQ(problem_of("w\n1\n"), "m:1: the model names no 'solver_type'");
  EXPECT_EQ(problem_of("solver_type L2R_LR\nw\n1\n"), "m:2: the model names no 'label'");
  EXPECT_EQ(problem_of(with("", "1\n")), "m:7: the file ends after 1 of 2 weights");
  EXPECT_EQ(problem_of(with("", "1\n2\n3\n")), "m:9: more weights than 2");
  EXPECT_EQ(problem_of(with("", "1\nx\n")), "m:8: expected one weight");
  EXPECT_EQ(problem_of(with("", "1 2\n")), "m:7: expected one weight");
  EXPECT_EQ(problem_of(with("nr_feature 4000000000\n")),
            "m:8: the file ends after 2 of 4000000000 weights");
}

}  // namespace
}  // namespace dunlin::svm
