#include "apps/cnn/torch_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "apps/cnn/generator.h"

namespace dunlin::cnn {
namespace {

// A network on memory of the test, and images that it can learn.
class CnnNetwork : public ::testing::Test {
 protected:
  void make(NetworkKind kind, bool has_batch_norm = false, std::size_t batch_size = 16,
            int noise = 64) {
    GeneratorOptions generate;
    generate.count = 320;
    generate.noise = noise;
    images_ = cnn::generate(generate).value();
    Batches::Options options;
    options.size = batch_size;
    batches_ = std::make_unique<Batches>(images_, normalization_of(images_), options,
                                         images_.count() / batch_size);
    network_ = make_torch_network(make_architecture(kind, 3, 10, has_batch_norm), 1).value();
    parameters_.resize(network_->architecture().count);
    gradient_.assign(parameters_.size(), 1e9F);  // leftovers of a former iteration
    initialize(network_->architecture(), 3, parameters_);
    ASSERT_TRUE(network_->bind(parameters_, gradient_).is_ok());
  }

  Judgment train(std::uint64_t iteration) {
    auto outcome = network_->train(batches_->at(iteration),
                                   [](std::size_t, std::size_t) { return Status::ok(); });
    EXPECT_TRUE(outcome.is_ok()) << outcome.status().to_string();
    return outcome ? *outcome : Judgment{};
  }

  void descend(float rate) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i] -= rate * gradient_[i];
  }

  Images images_;
  std::unique_ptr<Batches> batches_;
  std::unique_ptr<Network> network_;
  std::vector<float> parameters_;
  std::vector<float> gradient_;
};

// From the end to the beginning without gaps: the order in which methods send.
TEST_F(CnnNetwork, EveryElementIsReadyOnceInOrderAndFinalThen) {
  for (const NetworkKind kind :
       {NetworkKind::kSmall, NetworkKind::kVgg11, NetworkKind::kResnet20}) {
    make(kind, false, 4);
    for (std::uint64_t iteration = 0; iteration < 2; ++iteration) {
      std::size_t left = gradient_.size();
      std::size_t calls = 0;
      std::vector<float> seen(gradient_.size());
      const auto outcome = network_->train(
          batches_->at(iteration), [&](std::size_t first, std::size_t count) -> Status {
            EXPECT_EQ(first + count, left) << to_string(kind);
            std::copy_n(gradient_.begin() + static_cast<std::ptrdiff_t>(first), count,
                        seen.begin() + static_cast<std::ptrdiff_t>(first));
            left = first;
            ++calls;
            return Status::ok();
          });
      ASSERT_TRUE(outcome.is_ok()) << outcome.status().to_string();
      EXPECT_EQ(left, 0U) << to_string(kind);
      EXPECT_EQ(calls, network_->architecture().segments.size());
      EXPECT_EQ(seen, gradient_) << to_string(kind);
      for (const float value : gradient_) ASSERT_LT(std::abs(value), 1e4F);
    }
  }
}

// Along the gradient, the loss changes by the square of the gradient's length per unit of distance.
TEST_F(CnnNetwork, GradientsAreThoseOfTheLoss) {
  for (const auto& [kind, has_batch_norm] : {std::pair{NetworkKind::kSmall, false},
                                             {NetworkKind::kSmall, true},
                                             {NetworkKind::kResnet20, true}}) {
    make(kind, has_batch_norm);
    train(0);
    // Segment by segment, so that the gradient of each layer is tested.
    for (const Segment& segment : network_->architecture().segments) {
      const std::vector<float> here = parameters_;
      const std::vector<float> slope = gradient_;
      double square = 0;
      for (std::size_t i = segment.first; i < segment.first + segment.count; ++i) {
        square += double{slope[i]} * slope[i];
      }
      ASSERT_GT(square, 0);
      // The step changes the loss by some hundredths on both sides; floats do not resolve less.
      const double way = 0.02 / square;
      double losses[2];
      for (const int side : {0, 1}) {
        for (std::size_t i = segment.first; i < segment.first + segment.count; ++i) {
          parameters_[i] = here[i] + static_cast<float>((side == 0 ? -way : way) * slope[i]);
        }
        losses[side] = train(0).loss;
      }
      parameters_ = here;
      EXPECT_NEAR((losses[1] - losses[0]) / 0.04, 1, 0.1) << to_string(kind);
      train(0);
    }
  }
}

TEST_F(CnnNetwork, LossGoesDown) {
  for (const auto& [kind, rate, share] :
       {std::tuple{NetworkKind::kSmall, 0.05F, 0.5}, {NetworkKind::kResnet20, 0.2F, 0.7}}) {
    make(kind, false, 16, 16);
    std::vector<double> losses;
    for (std::uint64_t iteration = 0; iteration < 60; ++iteration) {
      losses.push_back(train(iteration).loss);
      descend(rate);
    }
    const auto sum = [](auto from) { return std::accumulate(from, from + 10, 0.0); };
    EXPECT_LT(sum(losses.end() - 10), share * sum(losses.begin())) << to_string(kind);
    // Batches of images that are not in the training set. Guessing would get 16 of 160 right.
    GeneratorOptions others;
    others.first = 320;
    others.count = 160;
    others.noise = 16;
    images_ = cnn::generate(others).value();
    EXPECT_GT(network_->evaluate(batches_->in_order(0, 160)).value().right, 60U) << to_string(kind);
  }
}

TEST_F(CnnNetwork, TheSameComputationGivesTheSameBits) {
  std::vector<float> first;
  for (int time = 0; time < 2; ++time) {
    make(NetworkKind::kResnet20);
    for (std::uint64_t iteration = 0; iteration < 3; ++iteration) {
      train(iteration);
      descend(0.1F);
    }
    if (time == 0) first = parameters_;
  }
  EXPECT_EQ(parameters_, first);
}

TEST_F(CnnNetwork, RunningStatisticsAreTheWorkersOwnAndFollowTraining) {
  make(NetworkKind::kSmall, true);
  const auto copy = [&] {
    const auto now = network_->statistics();
    return std::vector<float>(now.begin(), now.end());
  };
  const std::vector<float> before = copy();
  ASSERT_EQ(before.size(), 2U * (16 + 32));
  ASSERT_TRUE(network_->evaluate(batches_->at(0)).is_ok());
  EXPECT_EQ(copy(), before);
  train(0);
  const std::vector<float> after = copy();
  EXPECT_NE(after, before);
  // Evaluation uses the running statistics as they are, so that values written to them count.
  const double with_own = network_->evaluate(batches_->at(0)).value().loss;
  std::ranges::copy(before, network_->statistics().begin());
  EXPECT_NE(network_->evaluate(batches_->at(0)).value().loss, with_own);
  std::ranges::copy(after, network_->statistics().begin());
  EXPECT_EQ(network_->evaluate(batches_->at(0)).value().loss, with_own);
}

TEST_F(CnnNetwork, EvaluatesOtherParametersWithoutGradient) {
  make(NetworkKind::kSmall);
  const Judgment own = network_->evaluate(batches_->at(0)).value();
  std::vector<float> zeros(parameters_.size());
  ASSERT_TRUE(network_->bind(zeros, {}).is_ok());
  // All classes are equally likely: ln 10.
  EXPECT_NEAR(network_->evaluate(batches_->at(0)).value().loss, std::log(10), 1e-5);
  ASSERT_TRUE(network_->bind(parameters_, gradient_).is_ok());
  EXPECT_EQ(network_->evaluate(batches_->at(0)).value().loss, own.loss);
}

TEST_F(CnnNetwork, ErrorsComeBack) {
  make(NetworkKind::kSmall);
  int calls = 0;
  const auto refused = network_->train(batches_->at(0), [&](std::size_t, std::size_t) {
    ++calls;
    return Status(Code::kPeerDead, "gone");
  });
  EXPECT_EQ(refused.status().code(), Code::kPeerDead);
  EXPECT_EQ(calls, 1);
  parameters_[0] = std::nanf("");
  const auto diverged = network_->train(batches_->at(0), [&](std::size_t, std::size_t) {
    ++calls;
    return Status::ok();
  });
  EXPECT_EQ(diverged.status().code(), Code::kOutOfRange);
  EXPECT_EQ(calls, 1) << "nothing is sent of what is no number";
  parameters_[0] = 0;
  train(1);  // goes on
  // A label beyond the classes makes LibTorch throw.
  images_.labels.assign(images_.count(), 10);
  const Status thrown = network_->evaluate(batches_->at(0)).status();
  EXPECT_EQ(thrown.code(), Code::kInternal);
  EXPECT_TRUE(thrown.message().starts_with("LibTorch: evaluating: ")) << thrown.message();
}

}  // namespace
}  // namespace dunlin::cnn
