// The bodies of the kernels that are no matrix products: normalization, rectifiers, pools,
// shortcuts, means and the loss, each with its gradient. arguments.h says what they compute.
#pragma once

#include <cmath>

#include "apps/cnn/gpu/arguments.h"
#include "apps/cnn/gpu/block.h"

namespace dunlin::cnn::gpu {

DUNLIN_DEVICE void sum_parts(const Block& block, const SumArguments& arguments) {
  for_all(block, arguments.count, [&](std::uint32_t i) {
    float sum = 0;
    for (std::uint32_t part = 0; part < arguments.parts_count; ++part)
      sum += arguments.parts[part * arguments.count + i];
    arguments.target[i] = sum;
  });
}

// Calls function(i) for a thread's elements of a channel.
template <typename Function>
DUNLIN_DEVICE void for_channel(const Shape& shape, std::uint32_t channel, unsigned thread,
                               const Function& function) {
  const std::uint32_t plane_bits = 2 * shape.side_bits;
  for (std::uint32_t i = thread; i < shape.images << plane_bits; i += kThreads) {
    const std::uint32_t image = i >> plane_bits;
    function(((image * shape.channels + channel) << plane_bits) + (i & (shape.plane() - 1)));
  }
}

// The sum of value(i) over a channel.
template <typename Value>
DUNLIN_DEVICE float sum_of_channel(const Block& block, const Shape& shape, std::uint32_t channel,
                                   const Value& value) {
  PerThread<float> parts;
  block.each([&](unsigned thread) {
    float sum = 0;
    for_channel(shape, channel, thread, [&](std::uint32_t i) { sum += value(i); });
    parts[thread] = sum;
  });
  return sum_of(block, parts);
}

DUNLIN_DEVICE void channel_sum(const Block& block, const ChannelSumArguments& arguments) {
  const std::uint32_t channel = block.index();
  const float sum = sum_of_channel(block, arguments.shape, channel,
                                   [&](std::uint32_t i) { return arguments.values[i]; });
  block.each([&](unsigned thread) {
    if (thread == 0) arguments.sums[channel] = sum;
  });
}

DUNLIN_DEVICE void batch_norm(const Block& block, const BatchNormArguments& arguments) {
  const Shape& shape = arguments.shape;
  const std::uint32_t channel = block.index();
  const auto count = static_cast<float>(shape.images * shape.plane());
  float mean = arguments.running_mean[channel];
  float variance = arguments.running_variance[channel];
  if (arguments.is_training) {
    const float running_mean = mean;
    const float running_variance = variance;
    mean =
        sum_of_channel(block, shape, channel, [&](std::uint32_t i) { return arguments.input[i]; }) /
        count;
    const float squares = sum_of_channel(block, shape, channel, [&](std::uint32_t i) {
      const float distance = arguments.input[i] - mean;
      return distance * distance;
    });
    variance = squares / count;
    block.each([&](unsigned thread) {
      if (thread != 0) return;
      const float unbiased = squares / (count > 1 ? count - 1 : 1);
      arguments.running_mean[channel] = running_mean + arguments.momentum * (mean - running_mean);
      arguments.running_variance[channel] =
          running_variance + arguments.momentum * (unbiased - running_variance);
    });
  }
  const float inverse = 1 / std::sqrt(variance + arguments.least_variance);
  const float scale = arguments.weight[channel] * inverse;
  const float bias = arguments.bias[channel];
  block.each([&](unsigned thread) {
    if (thread == 0) {
      arguments.mean[channel] = mean;
      arguments.inverse[channel] = inverse;
    }
    for_channel(shape, channel, thread, [&](std::uint32_t i) {
      arguments.output[i] = (arguments.input[i] - mean) * scale + bias;
    });
  });
}

// Ioffe and Szegedy, Batch Normalization, section 3.
DUNLIN_DEVICE void batch_norm_gradient(const Block& block,
                                       const BatchNormGradientArguments& arguments) {
  const Shape& shape = arguments.shape;
  const std::uint32_t channel = block.index();
  const auto count = static_cast<float>(shape.images * shape.plane());
  const float mean = arguments.mean[channel];
  const float inverse = arguments.inverse[channel];
  const float sum = sum_of_channel(block, shape, channel,
                                   [&](std::uint32_t i) { return arguments.output_gradient[i]; });
  const float product = sum_of_channel(block, shape, channel, [&](std::uint32_t i) {
    return arguments.output_gradient[i] * (arguments.input[i] - mean) * inverse;
  });
  const float scale = arguments.weight[channel] * inverse;
  block.each([&](unsigned thread) {
    if (thread == 0) {
      arguments.weight_gradient[channel] = product;
      arguments.bias_gradient[channel] = sum;
    }
    for_channel(shape, channel, thread, [&](std::uint32_t i) {
      const float normalized = (arguments.input[i] - mean) * inverse;
      arguments.input_gradient[i] =
          scale * (arguments.output_gradient[i] - (sum + normalized * product) / count);
    });
  });
}

// What is no number stays so, here and in the pool.
DUNLIN_DEVICE void relu(const Block& block, const ReluArguments& arguments) {
  for_all(block, arguments.count, [&](std::uint32_t i) {
    arguments.to[i] = arguments.from[i] < 0 ? 0 : arguments.from[i];
  });
}

DUNLIN_DEVICE void relu_gradient(const Block& block, const ReluArguments& arguments) {
  for_all(block, arguments.count, [&](std::uint32_t i) {
    arguments.to[i] = arguments.gate[i] > 0 ? arguments.from[i] : 0;
  });
}

// The place of the largest pixel of an output.
struct Pooled {
  std::uint32_t first;  // upper left pixel
  std::uint32_t side;

  DUNLIN_DEVICE Pooled(const Shape& input, std::uint32_t output) : side(1U << input.side_bits) {
    const std::uint32_t bits = input.side_bits - 1;
    const std::uint32_t plane = output >> (2 * bits);
    const std::uint32_t y = output >> bits & ((1U << bits) - 1);
    const std::uint32_t x = output & ((1U << bits) - 1);
    first = (plane << (2 * input.side_bits)) + 2 * y * side + 2 * x;
  }
  DUNLIN_DEVICE std::uint32_t place(unsigned pixel) const {
    return first + pixel / 2 * side + pixel % 2;
  }
  DUNLIN_DEVICE unsigned largest(const float* values) const {
    unsigned largest = 0;
    for (unsigned pixel = 1; pixel < 4; ++pixel) {
      const float value = values[place(pixel)];
      if (value > values[place(largest)] || value != value) largest = pixel;
    }
    return largest;
  }
};

DUNLIN_DEVICE void max_pool(const Block& block, const PoolArguments& arguments) {
  for_all(block, arguments.outputs(), [&](std::uint32_t i) {
    const Pooled pooled(arguments.input_shape, i);
    arguments.output[i] = arguments.input[pooled.place(pooled.largest(arguments.input))];
  });
}

DUNLIN_DEVICE void max_pool_gradient(const Block& block, const PoolArguments& arguments) {
  for_all(block, arguments.outputs(), [&](std::uint32_t i) {
    const Pooled pooled(arguments.input_shape, i);
    const unsigned largest = pooled.largest(arguments.input);
    for (unsigned pixel = 0; pixel < 4; ++pixel) {
      arguments.input_gradient[pooled.place(pixel)] =
          pixel == largest ? arguments.output_gradient[i] : 0;
    }
  });
}

// The number of new channels in front of those that were kept.
DUNLIN_DEVICE std::uint32_t new_channels(const ShortcutArguments& arguments) {
  return (arguments.output_shape.channels - arguments.kept_shape.channels) / 2;
}

DUNLIN_DEVICE void shortcut(const Block& block, const ShortcutArguments& arguments) {
  const Shape& shape = arguments.output_shape;
  const Shape& kept = arguments.kept_shape;
  for_all(block, shape.count(), [&](std::uint32_t i) {
    const std::uint32_t plane = i >> (2 * shape.side_bits);
    const std::uint32_t image = plane / shape.channels;
    const std::uint32_t channel = plane % shape.channels - new_channels(arguments);  // may wrap
    float value = arguments.input[i];
    if (channel < kept.channels) {
      const std::uint32_t y = i >> shape.side_bits & ((1U << shape.side_bits) - 1);
      const std::uint32_t x = i & ((1U << shape.side_bits) - 1);
      value +=
          arguments
              .kept[((image * kept.channels + channel) << (2 * kept.side_bits)) +
                    (y << arguments.stride_bits << kept.side_bits) + (x << arguments.stride_bits)];
    }
    arguments.output[i] = value;
  });
}

DUNLIN_DEVICE void shortcut_gradient(const Block& block, const ShortcutArguments& arguments) {
  const Shape& shape = arguments.output_shape;
  const Shape& kept = arguments.kept_shape;
  for_all(block, kept.count(), [&](std::uint32_t i) {
    const std::uint32_t y = i >> kept.side_bits & ((1U << kept.side_bits) - 1);
    const std::uint32_t x = i & ((1U << kept.side_bits) - 1);
    if (((y | x) & ((1U << arguments.stride_bits) - 1)) != 0) return;
    const std::uint32_t plane = i >> (2 * kept.side_bits);
    const std::uint32_t image = plane / kept.channels;
    const std::uint32_t channel = plane % kept.channels + new_channels(arguments);
    arguments.kept_gradient[i] +=
        arguments.output_gradient[((image * shape.channels + channel) << (2 * shape.side_bits)) +
                                  (y >> arguments.stride_bits << shape.side_bits) +
                                  (x >> arguments.stride_bits)];
  });
}

DUNLIN_DEVICE void mean(const Block& block, const MeanArguments& arguments) {
  const std::uint32_t pixels = arguments.shape.plane();
  for_all(block, arguments.planes(), [&](std::uint32_t plane) {
    float sum = 0;
    for (std::uint32_t i = 0; i < pixels; ++i) sum += arguments.input[plane * pixels + i];
    arguments.output[plane] = sum / static_cast<float>(pixels);
  });
}

DUNLIN_DEVICE void mean_gradient(const Block& block, const MeanArguments& arguments) {
  const std::uint32_t pixels = arguments.shape.plane();
  for_all(block, arguments.shape.count(), [&](std::uint32_t i) {
    arguments.input_gradient[i] =
        arguments.output_gradient[i / pixels] / static_cast<float>(pixels);
  });
}

DUNLIN_DEVICE void loss(const Block& block, const LossArguments& arguments) {
  PerThread<float> losses;
  PerThread<float> rights;
  const auto images = static_cast<float>(arguments.images);
  block.each([&](unsigned thread) {
    losses[thread] = 0;
    rights[thread] = 0;
    for (std::uint32_t image = thread; image < arguments.images; image += kThreads) {
      const std::uint32_t first = image * arguments.classes;
      const float* const scores = arguments.scores + first;
      const auto label = static_cast<std::uint32_t>(arguments.labels[image]);
      std::uint32_t best = 0;
      for (std::uint32_t c = 1; c < arguments.classes; ++c) {
        if (scores[c] > scores[best]) best = c;
      }
      float sum = 0;
      for (std::uint32_t c = 0; c < arguments.classes; ++c)
        sum += std::exp(scores[c] - scores[best]);
      losses[thread] += std::log(sum) - (scores[label] - scores[best]);
      rights[thread] += best == label ? 1.0F : 0.0F;
      if (arguments.gradient == nullptr) continue;
      for (std::uint32_t c = 0; c < arguments.classes; ++c) {
        const float share = std::exp(scores[c] - scores[best]) / sum;
        arguments.gradient[first + c] = (share - (c == label ? 1.0F : 0.0F)) / images;
      }
    }
  });
  const float loss = sum_of(block, losses) / images;
  const float right = sum_of(block, rights);
  block.each([&](unsigned thread) {
    if (thread == 0) *arguments.outcome = {loss, right};
  });
}

}  // namespace dunlin::cnn::gpu
