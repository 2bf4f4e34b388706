// The parameters of the kernels of this folder. A kernel has one, a structure. Its layout is the
// same for the host's compiler and for nvcc.
//
// Tensors are contiguous: image after image, channel after channel, row after row. Planes are
// squares whose sides are powers of two. Numbers of elements are below 2^31. A null pointer says
// that a kernel does without it.
//
// each_memory(use) calls use(pointer, number of elements) for all memory that a kernel may access.
// The stand-in for the driver in tests/ checks and translates the addresses with it.
#pragma once

#include <cstdint>

namespace dunlin::cnn::gpu {

// Images of `channels` planes, whose sides have 2^side_bits pixels.
struct Shape {
  std::uint32_t images = 0;
  std::uint32_t channels = 0;
  std::uint32_t side_bits = 0;

  constexpr std::uint32_t plane() const { return 1U << (2 * side_bits); }
  constexpr std::uint32_t count() const { return images * channels * plane(); }
};

// A convolution of 3 x 3 pixels, padded by 1, or its gradients.
struct ConvolutionArguments {
  Shape input_shape;
  Shape output_shape;
  std::uint32_t stride_bits = 0;
  std::uint32_t splits = 1;  // of the sum over all pixels, for the gradient of the weights
  const float* input = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* output = nullptr;
  const float* output_gradient = nullptr;
  float* input_gradient = nullptr;
  float* weight_gradient = nullptr;  // for each split

  constexpr std::uint32_t weights() const {
    return input_shape.channels * output_shape.channels * 9;
  }
  template <typename Use>
  void each_memory(const Use& use) {
    use(input, input_shape.count());
    use(weight, weights());
    use(bias, output_shape.channels);
    use(output, output_shape.count());
    use(output_gradient, output_shape.count());
    use(input_gradient, input_shape.count());
    use(weight_gradient, splits * weights());
  }
};

// A fully connected layer, or its gradients.
struct LinearArguments {
  std::uint32_t images = 0;
  std::uint32_t inputs = 0;
  std::uint32_t outputs = 0;
  const float* input = nullptr;
  const float* weight = nullptr;  // outputs x inputs
  const float* bias = nullptr;
  float* output = nullptr;
  const float* output_gradient = nullptr;
  float* input_gradient = nullptr;
  float* weight_gradient = nullptr;

  template <typename Use>
  void each_memory(const Use& use) {
    use(input, images * inputs);
    use(weight, outputs * inputs);
    use(bias, outputs);
    use(output, images * outputs);
    use(output_gradient, images * outputs);
    use(input_gradient, images * inputs);
    use(weight_gradient, outputs * inputs);
  }
};

// target[i] = the sum of parts[p * count + i] over all p.
struct SumArguments {
  std::uint32_t parts_count = 1;
  std::uint32_t count = 0;
  const float* parts = nullptr;
  float* target = nullptr;

  template <typename Use>
  void each_memory(const Use& use) {
    use(parts, parts_count * count);
    use(target, count);
  }
};

// sums[c] = the sum over all images and pixels of channel c. A block per channel.
struct ChannelSumArguments {
  Shape shape;
  const float* values = nullptr;
  float* sums = nullptr;

  template <typename Use>
  void each_memory(const Use& use) {
    use(values, shape.count());
    use(sums, shape.channels);
  }
};

// Batch normalization. A block per channel.
struct BatchNormArguments {
  Shape shape;
  float momentum = 0;        // of the running statistics
  float least_variance = 0;  // is added to the variance
  bool is_training = false;  // with the batch's own statistics, which go into the running ones
  const float* input = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* output = nullptr;
  float* running_mean = nullptr;
  float* running_variance = nullptr;
  // What the gradient needs of the batch: the mean and the inverse of the deviation.
  float* mean = nullptr;
  float* inverse = nullptr;

  template <typename Use>
  void each_memory(const Use& use) {
    use(input, shape.count());
    use(weight, shape.channels);
    use(bias, shape.channels);
    use(output, shape.count());
    use(running_mean, shape.channels);
    use(running_variance, shape.channels);
    use(mean, shape.channels);
    use(inverse, shape.channels);
  }
};

struct BatchNormGradientArguments {
  Shape shape;
  const float* input = nullptr;
  const float* weight = nullptr;
  const float* mean = nullptr;
  const float* inverse = nullptr;
  const float* output_gradient = nullptr;
  float* input_gradient = nullptr;  // may be output_gradient
  float* weight_gradient = nullptr;
  float* bias_gradient = nullptr;

  template <typename Use>
  void each_memory(const Use& use) {
    use(input, shape.count());
    use(weight, shape.channels);
    use(mean, shape.channels);
    use(inverse, shape.channels);
    use(output_gradient, shape.count());
    use(input_gradient, shape.count());
    use(weight_gradient, shape.channels);
    use(bias_gradient, shape.channels);
  }
};

// to[i] = from[i] where it is positive (relu), or where gate[i] is positive (relu_gradient);
// otherwise 0.
struct ReluArguments {
  std::uint32_t count = 0;
  const float* from = nullptr;
  const float* gate = nullptr;
  float* to = nullptr;  // may be `from`

  template <typename Use>
  void each_memory(const Use& use) {
    use(from, count);
    use(gate, count);
    use(to, count);
  }
};

// The largest of 2 x 2 pixels, or the gradient, which the first of the largest pixels gets.
struct PoolArguments {
  Shape input_shape;
  const float* input = nullptr;
  float* output = nullptr;
  const float* output_gradient = nullptr;
  float* input_gradient = nullptr;

  constexpr std::uint32_t outputs() const { return input_shape.count() / 4; }
  template <typename Use>
  void each_memory(const Use& use) {
    use(input, input_shape.count());
    use(output, outputs());
    use(output_gradient, outputs());
    use(input_gradient, input_shape.count());
  }
};

// A shortcut's end: output = input + every stride-th pixel of what was kept, with zeros as new
// channels around it. Or its gradient: kept_gradient[i] += the gradient of the output of which i is
// a part.
struct ShortcutArguments {
  Shape kept_shape;
  Shape output_shape;
  std::uint32_t stride_bits = 0;
  const float* kept = nullptr;
  const float* input = nullptr;
  float* output = nullptr;
  const float* output_gradient = nullptr;
  float* kept_gradient = nullptr;

  template <typename Use>
  void each_memory(const Use& use) {
    use(kept, kept_shape.count());
    use(input, output_shape.count());
    use(output, output_shape.count());
    use(output_gradient, output_shape.count());
    use(kept_gradient, kept_shape.count());
  }
};

// The mean of each plane, or its gradient.
struct MeanArguments {
  Shape shape;
  const float* input = nullptr;
  float* output = nullptr;
  const float* output_gradient = nullptr;
  float* input_gradient = nullptr;

  constexpr std::uint32_t planes() const { return shape.images * shape.channels; }
  template <typename Use>
  void each_memory(const Use& use) {
    use(input, shape.count());
    use(output, planes());
    use(output_gradient, planes());
    use(input_gradient, shape.count());
  }
};

// What a batch's scores are worth.
struct Outcome {
  float loss = 0;   // cross entropy, mean over the batch
  float right = 0;  // number of images whose class got the largest score
};

// The outcome of scores, and the gradient of the loss. One block.
struct LossArguments {
  std::uint32_t images = 0;
  std::uint32_t classes = 0;
  const float* scores = nullptr;
  const std::int64_t* labels = nullptr;  // below `classes`
  float* gradient = nullptr;
  Outcome* outcome = nullptr;

  template <typename Use>
  void each_memory(const Use& use) {
    use(scores, images * classes);
    use(labels, images);
    use(gradient, images * classes);
    use(outcome, 1);
  }
};

}  // namespace dunlin::cnn::gpu
