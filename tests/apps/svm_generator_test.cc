#include "apps/svm/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "apps/svm/evaluate.h"
#include "apps/svm/learner.h"
#include "tests/apps/svm_text.h"

namespace dunlin::svm {
namespace {

constexpr GeneratorOptions kSmall{.rows = 500, .features = 2000, .nonzeros_per_row = 20};

TEST(Generator, IsDeterministicForASeed) {
  expect_same(generate(kSmall).value(), generate(kSmall).value());
  GeneratorOptions other = kSmall;
  other.seed = 2;
  EXPECT_NE(generate(other).value().indices, generate(kSmall).value().indices);
}

TEST(Generator, ShardsAndLaterRowsBelongToTheSameWhole) {
  const Dataset whole = generate(kSmall).value();
  std::vector<Dataset> shards;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    shards.push_back(generate(kSmall, {rank, 3}).value());
    EXPECT_EQ(shards.back().total_rows, whole.rows());
  }
  expect_dealt_from(whole, shards);

  GeneratorOptions tail = kSmall;
  tail.first_row = 400;
  tail.rows = 100;
  const Dataset last = generate(tail).value();
  for (std::size_t i = 0; i < last.rows(); ++i) {
    EXPECT_TRUE(are_same(last.row(i), whole.row(400 + i))) << i;
  }
}

TEST(Generator, RowsLookLikeWeighedTexts) {
  const Dataset data = generate(kSmall).value();
  EXPECT_NEAR(static_cast<double>(data.indices.size()) / data.rows(), 20, 2);
  std::vector<int> occurrences(data.features);
  for (std::size_t i = 0; i < data.rows(); ++i) {
    const Row row = data.row(i);
    double square = 0;
    for (std::size_t k = 0; k < row.indices.size(); ++k) {
      EXPECT_GT(row.values[k], 0);
      EXPECT_TRUE(k == 0 || row.indices[k - 1] < row.indices[k]);
      square += double{row.values[k]} * row.values[k];
      ++occurrences[row.indices[k]];
    }
    EXPECT_NEAR(square, 1, 1e-5);
  }
  // Power law: the first tenth of the features has far more than a tenth of the occurrences.
  int head = 0;
  for (std::size_t f = 0; f < 200; ++f) head += occurrences[f];
  EXPECT_GT(head, static_cast<int>(data.indices.size()) / 3);
  const auto positive = std::count(data.labels.begin(), data.labels.end(), 1.0F);
  EXPECT_GT(positive, 150);
  EXPECT_LT(positive, 350);
}

TEST(Generator, FlippedLabelsAreTheOnlyDifferenceThatFlippingMakes) {
  GeneratorOptions options = kSmall;
  options.flipped = 0;
  const Dataset clean = generate(options).value();
  options.flipped = 0.25;
  const Dataset noisy = generate(options).value();
  EXPECT_EQ(noisy.values, clean.values);
  int flipped = 0;
  for (std::size_t i = 0; i < clean.rows(); ++i) flipped += clean.labels[i] != noisy.labels[i];
  EXPECT_NEAR(flipped, 125, 40);
}

TEST(Generator, ThePlantedModelCanBeLearnt) {
  GeneratorOptions options{.rows = 4000, .features = 5000, .nonzeros_per_row = 40};
  const Dataset train = generate(options).value();
  options.first_row = options.rows;
  options.rows = 1000;
  const Dataset test = generate(options).value();
  LearnerOptions learning;
  learning.eta0 = find_eta0(train, learning).value();
  std::vector<float> model(train.features + 1);
  Learner learner = Learner::create(model, train, learning).value();
  learner.train(10 * train.rows());
  learner.materialize();
  EXPECT_LT(evaluate(model, test, learning.loss, learning.lambda).error_rate(), 0.15);
}

TEST(Generator, ImpossibleOptionsAreNamed) {
  const auto error_of = [](GeneratorOptions options, Shard shard = {}) {
    return std::string(generate(options, shard).status().message());
  };
  EXPECT_EQ(error_of({.rows = 0}), "generated data: rows is 0");
  EXPECT_EQ(error_of({.features = 10, .nonzeros_per_row = 11}),
            "generated data: 11 non-zeros in a row of 10 features");
  EXPECT_EQ(error_of({.flipped = 0.6}),
            "generated data: a share of 0.6 flipped labels is outside 0..0.5");
  EXPECT_EQ(error_of({}, {2, 2}), "generated data: shard 2 of 2");
}

}  // namespace
}  // namespace dunlin::svm
