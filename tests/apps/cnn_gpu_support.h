// What the tests of networks on GPUs share: small architectures, and the comparison of two networks
// that compute on different devices.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/cnn/device.h"
#include "apps/cnn/generator.h"
#include "apps/cnn/gpu/gpu_network.h"

namespace dunlin::cnn::testing {

// Builds architectures of few layers.
class Tiny {
 public:
  explicit Tiny(int channels) : channels_(channels) { architecture_.channels = channels; }

  Tiny& convolution(int channels, int stride, bool has_bias) {
    segment();
    Layer layer = layer_of(Layer::Kind::kConvolution, stride);
    layer.weight = parameter({channels, channels_, 3, 3}, 0, 0.3F);
    if (has_bias) layer.bias = parameter({channels}, 0.1F, 0.1F);
    channels_ = channels;
    side_ /= stride;
    return add(layer);
  }
  Tiny& batch_norm() {
    Layer layer = layer_of(Layer::Kind::kBatchNorm);
    layer.weight = parameter({channels_}, 1, 0.2F);
    layer.bias = parameter({channels_}, 0, 0.2F);
    layer.statistics = architecture_.statistics;
    architecture_.statistics += 2 * static_cast<std::size_t>(channels_);
    return add(layer);
  }
  Tiny& plain(Layer::Kind kind, int stride = 1) {
    if (kind == Layer::Kind::kMaxPool) side_ /= 2;
    if (kind == Layer::Kind::kMean) side_ = 1;
    return add(layer_of(kind, stride));
  }
  Architecture linear(int classes) {
    segment();
    Layer layer = layer_of(Layer::Kind::kLinear);
    layer.weight = parameter({classes, channels_ * side_ * side_}, 0, 0.05F);
    layer.bias = parameter({classes}, 0, 0.1F);
    channels_ = classes;
    add(layer);
    architecture_.classes = classes;
    return architecture_;
  }

 private:
  static Layer layer_of(Layer::Kind kind, int stride = 1) {
    Layer layer;
    layer.kind = kind;
    layer.stride = stride;
    return layer;
  }
  Tiny& add(Layer layer) {
    layer.channels = channels_;
    architecture_.layers.push_back(layer);
    return *this;
  }
  void segment() { architecture_.begin_segment(); }
  std::size_t parameter(std::vector<std::int64_t> shape, float mean, float deviation) {
    return architecture_.add_parameter(std::move(shape), mean, deviation);
  }

  Architecture architecture_;
  int channels_;
  int side_ = kInputSide;
};

// Generated images, as batches of `size`.
class Sample {
 public:
  Sample(const Architecture& architecture, std::size_t size) {
    GeneratorOptions generate;
    generate.count = 4 * size;
    generate.channels = architecture.channels;
    generate.classes = architecture.classes;
    images_ = cnn::generate(generate).value();
    Batches::Options options;
    options.size = size;
    batches_ = std::make_unique<Batches>(images_, normalization_of(images_), options, 4);
  }
  Batches& batches() { return *batches_; }
  Images& images() { return images_; }

 private:
  Images images_;
  std::unique_ptr<Batches> batches_;
};

// A network with parameters of its own, in the memory of its device.
class Bound {
 public:
  Bound(const Device& device, std::unique_ptr<Network> network)
      : device_(device), network_(std::move(network)) {
    const Architecture& architecture = network_->architecture();
    parameters_ = device_.allocate(architecture.count).value();
    gradient_ = device_.allocate(architecture.count).value();
    std::vector<float> initial(architecture.count);
    initialize(architecture, 3, initial);
    write(initial);
    EXPECT_TRUE(network_->bind(parameters_.elements(), gradient_.elements()).is_ok());
  }
  Network& operator*() { return *network_; }
  Network* operator->() { return network_.get(); }
  void write(const std::vector<float>& parameters) {
    EXPECT_TRUE(device_.write(parameters_.elements(), parameters).is_ok());
  }
  std::vector<float> parameters() { return device_.read(parameters_.elements()).value(); }
  std::vector<float> gradient() { return device_.read(gradient_.elements()).value(); }
  std::vector<float> statistics() { return device_.read(network_->statistics()).value(); }

 private:
  const Device& device_;
  std::unique_ptr<Network> network_;
  training::ModelVector parameters_;
  training::ModelVector gradient_;
};

// Elements of a gradient may differ by `tolerance` times the largest one of their parameter.
inline void expect_near(const Architecture& architecture, const std::vector<float>& gradient,
                        const std::vector<float>& expected, float tolerance) {
  for (std::size_t p = 0; p < architecture.parameters.size(); ++p) {
    const Parameter& parameter = architecture.parameters[p];
    const auto part = std::span(expected).subspan(parameter.first, parameter.count);
    float largest = 0;
    for (const float value : part) largest = std::max(largest, std::abs(value));
    ASSERT_GT(largest, 0) << "parameter " << p << " has no gradient to compare";
    float worst = 0;
    for (std::size_t i = 0; i < part.size(); ++i)
      worst = std::max(worst, std::abs(gradient[parameter.first + i] - part[i]));
    EXPECT_LE(worst, tolerance * largest) << "parameter " << p;
  }
}

// Trains both networks for two iterations with the same parameters, and evaluates them.
inline void compare(Bound& network, Bound& reference, std::size_t batch_size, float tolerance) {
  const Architecture& architecture = network->architecture();
  Sample sample(architecture, batch_size);
  for (std::uint64_t iteration = 0; iteration < 2; ++iteration) {
    const auto expected =
        reference->train(sample.batches().at(iteration), [](auto, auto) { return Status::ok(); });
    ASSERT_TRUE(expected.is_ok()) << expected.status().to_string();
    std::size_t left = architecture.count;
    const auto judgment = network->train(sample.batches().at(iteration),
                                         [&](std::size_t first, std::size_t count) -> Status {
                                           EXPECT_EQ(first + count, left) << "from the end";
                                           left = first;
                                           return Status::ok();
                                         });
    ASSERT_TRUE(judgment.is_ok()) << judgment.status().to_string();
    EXPECT_EQ(left, 0U);
    EXPECT_NEAR(judgment->loss, expected->loss, 1e-4 * expected->loss);
    EXPECT_EQ(judgment->right, expected->right);
    expect_near(architecture, network.gradient(), reference.gradient(), tolerance);
  }
  const auto statistics = network.statistics();
  const auto expected = reference.statistics();
  for (std::size_t i = 0; i < statistics.size(); ++i)
    ASSERT_NEAR(statistics[i], expected[i], 1e-4 * (1 + std::abs(expected[i]))) << i;
  const auto evaluated = network->evaluate(sample.batches().in_order(0, 3 * batch_size));
  ASSERT_TRUE(evaluated.is_ok()) << evaluated.status().to_string();
  const auto loss = reference->evaluate(sample.batches().in_order(0, 3 * batch_size)).value().loss;
  EXPECT_NEAR(evaluated->loss, loss, 1e-4 * loss);
}

// An architecture to compare networks with.
struct Case {
  std::string name;
  Architecture architecture;
  std::size_t batch_size = 3;
  float tolerance = kGradientTolerance;
};

// Every layer. The convolution in front has a gradient that went back through the layer.
inline std::vector<Case> layer_cases() {
  using Kind = Layer::Kind;
  const auto pooled = [](Tiny tiny) { return tiny.plain(Kind::kMaxPool).plain(Kind::kMaxPool); };
  return {
      {"linear", Tiny(3).linear(10), 5},
      {"linear, many classes", Tiny(1).linear(100), 9},
      {"convolution", Tiny(3).convolution(5, 1, true).linear(10)},
      {"convolutions", Tiny(1).convolution(20, 1, true).convolution(7, 1, true).linear(10)},
      {"stride", Tiny(3).convolution(9, 2, true).convolution(6, 2, false).linear(4), 5},
      {"many channels",
       pooled(Tiny(3)).convolution(72, 1, true).convolution(70, 1, true).linear(10)},
      {"many images", Tiny(1).convolution(4, 2, true).linear(3), 70},
      {"batch normalization", Tiny(3).convolution(6, 1, false).batch_norm().linear(10), 4},
      {"relu", Tiny(3).convolution(6, 1, true).plain(Kind::kRelu).linear(10)},
      {"pool", Tiny(3).convolution(6, 1, true).plain(Kind::kMaxPool).linear(10)},
      {"mean", Tiny(3).convolution(6, 1, true).plain(Kind::kMean).linear(10)},
      {"shortcut", Tiny(3)
                       .convolution(6, 1, true)
                       .plain(Kind::kShortcutBegin)
                       .convolution(6, 1, true)
                       .plain(Kind::kShortcutEnd)
                       .linear(10)},
      {"shortcut to more channels", Tiny(3)
                                        .convolution(6, 1, true)
                                        .plain(Kind::kShortcutBegin)
                                        .convolution(11, 2, true)
                                        .plain(Kind::kShortcutEnd, 2)
                                        .linear(10)},
  };
}

// Whole networks. The normalizations of resnet-20 enlarge what is rounded otherwise.
inline std::vector<Case> network_cases() {
  return {
      {"small", make_architecture(NetworkKind::kSmall, 3, 10, false), 8},
      {"small, one channel", make_architecture(NetworkKind::kSmall, 1, 7, true), 8},
      {"resnet-20", make_architecture(NetworkKind::kResnet20, 3, 10, true), 4,
       20 * kGradientTolerance},
      {"vgg-11", make_architecture(NetworkKind::kVgg11, 3, 10, false), 2},
  };
}

}  // namespace dunlin::cnn::testing
