#include "apps/cnn/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "apps/cnn/batches.h"
#include "runtime/random.h"

namespace dunlin::cnn {
namespace {

constexpr std::uint64_t kParameterStream = 0x706172616D65;

// Appends layers, and keeps track of the output of the last one.
class Builder {
 public:
  Builder(int channels, bool has_batch_norm)
      : channels_(channels), has_batch_norm_(has_batch_norm) {}

  void convolution(int channels, int stride = 1) {
    Layer layer;
    layer.kind = Layer::Kind::kConvolution;
    layer.stride = stride;
    const double deviation = std::sqrt(2.0 / (9 * channels_));
    begin_segment();
    layer.weight = parameter({channels, channels_, 3, 3}, 0, deviation);
    if (!has_batch_norm_) layer.bias = parameter({channels}, 0, 0);
    channels_ = channels;
    side_ /= stride;
    add(layer);
    if (has_batch_norm_) normalization();
  }

  void relu() { add(Layer::Kind::kRelu); }
  void pool() {
    side_ /= 2;
    add(Layer::Kind::kMaxPool);
  }
  void mean() {
    side_ = 1;
    add(Layer::Kind::kMean);
  }

  void linear(int classes) {
    const int inputs = channels_ * side_ * side_;
    Layer layer;
    layer.kind = Layer::Kind::kLinear;
    begin_segment();
    // Small scores in the beginning: the variance of PyTorch's Linear.
    layer.weight = parameter({classes, inputs}, 0, std::sqrt(1.0 / (3.0 * inputs)));
    layer.bias = parameter({classes}, 0, 0);
    channels_ = classes;
    add(layer);
  }

  // Two convolutions with a shortcut around them.
  void residual_block(int channels, int stride) {
    add(Layer::Kind::kShortcutBegin);
    convolution(channels, stride);
    relu();
    convolution(channels);
    Layer end;
    end.kind = Layer::Kind::kShortcutEnd;
    end.stride = stride;
    add(end);
    relu();
  }

  Architecture take() { return std::move(architecture_); }

 private:
  void add(Layer layer) {
    layer.channels = channels_;
    architecture_.layers.push_back(layer);
  }
  void add(Layer::Kind kind) {
    Layer layer;
    layer.kind = kind;
    add(layer);
  }

  void normalization() {
    Layer layer;
    layer.kind = Layer::Kind::kBatchNorm;
    layer.weight = parameter({channels_}, 1, 0);
    layer.bias = parameter({channels_}, 0, 0);
    layer.statistics = architecture_.statistics;
    architecture_.statistics += 2 * static_cast<std::size_t>(channels_);
    add(layer);
  }

  void begin_segment() { architecture_.begin_segment(); }
  std::size_t parameter(std::vector<std::int64_t> shape, double mean, double deviation) {
    return architecture_.add_parameter(std::move(shape), mean, deviation);
  }

  Architecture architecture_;
  int channels_;
  int side_ = kInputSide;
  const bool has_batch_norm_;
};

constexpr int kPool = 0;  // stands for a pooling layer in the lists of convolutions

void add_convolutions(Builder& builder, std::initializer_list<int> widths) {
  for (const int width : widths) {
    if (width == kPool) {
      builder.pool();
    } else {
      builder.convolution(width);
      builder.relu();
    }
  }
}

void add_residual_blocks(Builder& builder) {
  constexpr int kBlocks = 3;  // of each size: n of the 6 n + 2 layers
  builder.convolution(16);
  builder.relu();
  for (const int width : {16, 32, 64}) {
    for (int block = 0; block < kBlocks; ++block) {
      builder.residual_block(width, width > 16 && block == 0 ? 2 : 1);
    }
  }
  builder.mean();
}

}  // namespace

std::size_t Architecture::add_parameter(std::vector<std::int64_t> shape, double mean,
                                        double deviation) {
  Parameter made;
  made.count = 1;
  for (const std::int64_t extent : shape) made.count *= static_cast<std::size_t>(extent);
  made.shape = std::move(shape);
  made.segment = segments.size() - 1;
  made.first = count;
  made.mean = static_cast<float>(mean);
  made.deviation = static_cast<float>(deviation);
  segments.back().count += made.count;
  count += made.count;
  parameters.push_back(std::move(made));
  return parameters.size() - 1;
}

const char* to_string(NetworkKind kind) {
  switch (kind) {
    case NetworkKind::kSmall:
      return "small";
    case NetworkKind::kVgg11:
      return "vgg-11";
    case NetworkKind::kVgg16:
      return "vgg-16";
    case NetworkKind::kResnet20:
      return "resnet-20";
  }
  return "?";
}

Result<NetworkKind> parse_network(std::string_view name) {
  for (const NetworkKind kind : kNetworkKinds) {
    if (name == to_string(kind)) return kind;
  }
  return Status(Code::kInvalidArgument,
                fmt::format("no network '{}': small, vgg-11, vgg-16, resnet-20", name));
}

Architecture make_architecture(NetworkKind kind, int channels, int classes, bool has_batch_norm) {
  Builder builder(channels, has_batch_norm || kind == NetworkKind::kResnet20);
  switch (kind) {
    case NetworkKind::kSmall:
      add_convolutions(builder, {16, kPool, 32, kPool});
      break;
    case NetworkKind::kVgg11:
      add_convolutions(builder,
                       {64, kPool, 128, kPool, 256, 256, kPool, 512, 512, kPool, 512, 512, kPool});
      break;
    case NetworkKind::kVgg16:
      add_convolutions(builder, {64, 64, kPool, 128, 128, kPool, 256, 256, 256, kPool, 512, 512,
                                 512, kPool, 512, 512, 512, kPool});
      break;
    case NetworkKind::kResnet20:
      add_residual_blocks(builder);
      break;
  }
  builder.linear(classes);
  Architecture made = builder.take();
  made.kind = kind;
  made.channels = channels;
  made.classes = classes;
  return made;
}

void initialize(const Architecture& architecture, std::uint64_t seed, std::span<float> flat) {
  for (std::size_t i = 0; i < architecture.parameters.size(); ++i) {
    const Parameter& parameter = architecture.parameters[i];
    Random random(seed, kParameterStream, i);
    for (float& value : flat.subspan(parameter.first, parameter.count)) {
      value = parameter.mean;
      if (parameter.deviation > 0) {
        value += parameter.deviation * static_cast<float>(random.normal());
      }
    }
  }
}

std::vector<float> initial_statistics(const Architecture& architecture) {
  std::vector<float> statistics(architecture.statistics);
  for (const Layer& layer : architecture.layers) {
    if (layer.kind != Layer::Kind::kBatchNorm) continue;
    const auto channels = static_cast<std::size_t>(layer.channels);
    const auto variances = std::span(statistics).subspan(layer.statistics + channels, channels);
    std::ranges::fill(variances, 1.0F);
  }
  return statistics;
}

}  // namespace dunlin::cnn
