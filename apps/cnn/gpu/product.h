// Matrix products in tiles: convolutions as implicit products, fully connected layers, and their
// gradients. A problem says where the two factors' elements lie and what becomes of the result:
//
//   result(m, n) = the sum over k of left(m, k) * right(k, n)
//
// A block computes a tile of the result, and each of its threads kPerThread x kPerThread elements
// in registers. The factors go through shared memory, kTileK of k at a time. A sum is made in the
// order of k, whatever the tile is; splits (see Problem::splits()) are summed afterwards.
#pragma once

#include "apps/cnn/gpu/arguments.h"
#include "apps/cnn/gpu/block.h"

namespace dunlin::cnn::gpu {

// a * b + c, with one rounding on a GPU. On hosts, that might take a call of a function.
DUNLIN_DEVICE float multiply_add(float a, float b, float c) {
#ifdef __CUDACC__
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

inline constexpr unsigned kTileK = 16;
inline constexpr unsigned kPerThread = 4;  // in both directions
inline constexpr unsigned kTileElements = kThreads * kPerThread * kPerThread;

// Tiles of kTileM x (kTileElements / kTileM) elements, for problems with few or many rows.
inline constexpr unsigned kTileRows[] = {16, 32, 64};

// The number of blocks of a problem.
template <typename Problem>
constexpr unsigned product_blocks(const Problem& problem, unsigned tile_m) {
  const unsigned tile_n = kTileElements / tile_m;
  return (problem.m() + tile_m - 1) / tile_m * ((problem.n() + tile_n - 1) / tile_n) *
         problem.splits();
}

template <unsigned kTileM, typename Problem>
DUNLIN_DEVICE void product(const Block& block, const Problem& problem) {
  constexpr unsigned kTileN = kTileElements / kTileM;
  // The padding keeps rows aligned for vectors of four, and off the same bank.
  alignas(16) DUNLIN_SHARED float left[kTileK][kTileM + 4];
  alignas(16) DUNLIN_SHARED float right[kTileK][kTileN + 4];
  struct Sums {
    float at[kPerThread][kPerThread];
  };
  PerThread<Sums> sums;

  const unsigned tiles_m = (problem.m() + kTileM - 1) / kTileM;
  const unsigned tiles_n = (problem.n() + kTileN - 1) / kTileN;
  const unsigned first_m = block.index() % tiles_m * kTileM;
  const unsigned first_n = block.index() / tiles_m % tiles_n * kTileN;
  const unsigned split = block.index() / (tiles_m * tiles_n);
  const unsigned steps = (problem.k() + kTileK - 1) / kTileK;
  const unsigned steps_of_split = (steps + problem.splits() - 1) / problem.splits();
  const unsigned first_k = split * steps_of_split * kTileK;
  const unsigned most_k = first_k + steps_of_split * kTileK;
  const unsigned end_k = most_k < problem.k() ? most_k : problem.k();

  block.each([&](unsigned thread) { sums[thread] = {}; });
  for (unsigned at_k = first_k; at_k < end_k; at_k += kTileK) {
    block.each([&](unsigned thread) {
    // Neighboring threads load neighboring addresses: of the left factor along k.
#pragma unroll
      for (unsigned i = thread; i < kTileK * kTileM; i += kThreads) {
        const unsigned k = at_k + i % kTileK;
        const unsigned m = first_m + i / kTileK;
        const bool is_inside = k < end_k && m < problem.m();
        left[i % kTileK][i / kTileK] = is_inside ? problem.left(m, k) : 0;
      }
#pragma unroll
      for (unsigned i = thread; i < kTileK * kTileN; i += kThreads) {
        const unsigned row = Problem::kIsRightAlongK ? i % kTileK : i / kTileN;
        const unsigned column = Problem::kIsRightAlongK ? i / kTileK : i % kTileN;
        const unsigned k = at_k + row;
        const unsigned n = first_n + column;
        const bool is_inside = k < end_k && n < problem.n();
        right[row][column] = is_inside ? problem.right(k, n) : 0;
      }
    });
    block.each([&](unsigned thread) {
      Sums& sum = sums[thread];
      const unsigned from_m = thread / (kTileN / kPerThread) * kPerThread;
      const unsigned from_n = thread % (kTileN / kPerThread) * kPerThread;
#pragma unroll
      for (unsigned k = 0; k < kTileK; ++k) {
#pragma unroll
        for (unsigned i = 0; i < kPerThread; ++i) {
#pragma unroll
          for (unsigned j = 0; j < kPerThread; ++j) {
            sum.at[i][j] = multiply_add(left[k][from_m + i], right[k][from_n + j], sum.at[i][j]);
          }
        }
      }
    });
  }
  block.each([&](unsigned thread) {
    const unsigned from_m = first_m + thread / (kTileN / kPerThread) * kPerThread;
    const unsigned from_n = first_n + thread % (kTileN / kPerThread) * kPerThread;
#pragma unroll
    for (unsigned i = 0; i < kPerThread; ++i) {
#pragma unroll
      for (unsigned j = 0; j < kPerThread; ++j) {
        const bool is_inside = from_m + i < problem.m() && from_n + j < problem.n();
        if (is_inside) problem.store(from_m + i, from_n + j, split, sums[thread].at[i][j]);
      }
    }
  });
}

// A pixel of an image, from its number: image after image.
struct Pixel {
  std::uint32_t image;
  std::uint32_t offset;  // in its plane
  std::uint32_t y;
  std::uint32_t x;

  DUNLIN_DEVICE static Pixel at(std::uint32_t number, std::uint32_t side_bits) {
    const std::uint32_t side_mask = (1U << side_bits) - 1;
    const std::uint32_t offset = number & ((1U << (2 * side_bits)) - 1);
    return {number >> (2 * side_bits), offset, offset >> side_bits, offset & side_mask};
  }
};

// The place of an element of a tensor.
DUNLIN_DEVICE std::uint32_t place(const Shape& shape, std::uint32_t image, std::uint32_t channel,
                                  std::uint32_t offset) {
  return ((image * shape.channels + channel) << (2 * shape.side_bits)) + offset;
}

// The input's value that weight `tap` (a channel's 3 x 3 weights after one another) is multiplied
// with for a pixel of the output.
DUNLIN_DEVICE float tapped(const ConvolutionArguments& arguments, const Pixel& pixel,
                           std::uint32_t tap) {
  const std::uint32_t channel = tap / 9;
  const std::uint32_t y = (pixel.y << arguments.stride_bits) + tap % 9 / 3 - 1;  // may wrap
  const std::uint32_t x = (pixel.x << arguments.stride_bits) + tap % 3 - 1;
  const Shape& shape = arguments.input_shape;
  const std::uint32_t side = 1U << shape.side_bits;
  if (y >= side || x >= side) return 0;
  return arguments.input[place(shape, pixel.image, channel, (y << shape.side_bits) + x)];
}

// Output: channels x pixels.
struct Convolution {
  static constexpr bool kIsRightAlongK = false;
  const ConvolutionArguments& arguments;

  DUNLIN_DEVICE constexpr unsigned m() const { return arguments.output_shape.channels; }
  DUNLIN_DEVICE constexpr unsigned n() const {
    return arguments.output_shape.images * arguments.output_shape.plane();
  }
  DUNLIN_DEVICE constexpr unsigned k() const { return arguments.input_shape.channels * 9; }
  DUNLIN_DEVICE constexpr unsigned splits() const { return 1; }
  DUNLIN_DEVICE float left(unsigned channel, unsigned tap) const {
    return arguments.weight[channel * k() + tap];
  }
  DUNLIN_DEVICE float right(unsigned tap, unsigned pixel) const {
    return tapped(arguments, Pixel::at(pixel, arguments.output_shape.side_bits), tap);
  }
  DUNLIN_DEVICE void store(unsigned channel, unsigned number, unsigned, float value) const {
    const Pixel pixel = Pixel::at(number, arguments.output_shape.side_bits);
    if (arguments.bias != nullptr) value += arguments.bias[channel];
    arguments.output[place(arguments.output_shape, pixel.image, channel, pixel.offset)] = value;
  }
};

// The gradient of the input: its channels x its pixels.
struct ConvolutionInput {
  static constexpr bool kIsRightAlongK = false;
  const ConvolutionArguments& arguments;

  DUNLIN_DEVICE constexpr unsigned m() const { return arguments.input_shape.channels; }
  DUNLIN_DEVICE constexpr unsigned n() const {
    return arguments.input_shape.images * arguments.input_shape.plane();
  }
  DUNLIN_DEVICE constexpr unsigned k() const { return arguments.output_shape.channels * 9; }
  DUNLIN_DEVICE constexpr unsigned splits() const { return 1; }
  DUNLIN_DEVICE float left(unsigned channel, unsigned tap) const {
    return arguments.weight[(tap / 9 * m() + channel) * 9 + tap % 9];
  }
  DUNLIN_DEVICE float right(unsigned tap, unsigned number) const {
    const Pixel pixel = Pixel::at(number, arguments.input_shape.side_bits);
    const Shape& shape = arguments.output_shape;
    // Which output's tap falls on this pixel, if any.
    const std::uint32_t y = pixel.y + 1 - tap % 9 / 3;  // may wrap
    const std::uint32_t x = pixel.x + 1 - tap % 3;
    const std::uint32_t between = (1U << arguments.stride_bits) - 1;
    const std::uint32_t side = 1U << arguments.input_shape.side_bits;
    if (y >= side || x >= side || ((y | x) & between) != 0) return 0;
    const std::uint32_t offset =
        ((y >> arguments.stride_bits) << shape.side_bits) + (x >> arguments.stride_bits);
    return arguments.output_gradient[place(shape, pixel.image, tap / 9, offset)];
  }
  DUNLIN_DEVICE void store(unsigned channel, unsigned number, unsigned, float value) const {
    const Pixel pixel = Pixel::at(number, arguments.input_shape.side_bits);
    arguments.input_gradient[place(arguments.input_shape, pixel.image, channel, pixel.offset)] =
        value;
  }
};

// The gradient of the weights: channels of the output x taps. The sum over all pixels is long, and
// may be split.
struct ConvolutionWeight {
  static constexpr bool kIsRightAlongK = true;
  const ConvolutionArguments& arguments;

  DUNLIN_DEVICE constexpr unsigned m() const { return arguments.output_shape.channels; }
  DUNLIN_DEVICE constexpr unsigned n() const { return arguments.input_shape.channels * 9; }
  DUNLIN_DEVICE constexpr unsigned k() const {
    return arguments.output_shape.images * arguments.output_shape.plane();
  }
  DUNLIN_DEVICE constexpr unsigned splits() const { return arguments.splits; }
  DUNLIN_DEVICE float left(unsigned channel, unsigned number) const {
    const Pixel pixel = Pixel::at(number, arguments.output_shape.side_bits);
    return arguments
        .output_gradient[place(arguments.output_shape, pixel.image, channel, pixel.offset)];
  }
  DUNLIN_DEVICE float right(unsigned number, unsigned tap) const {
    return tapped(arguments, Pixel::at(number, arguments.output_shape.side_bits), tap);
  }
  DUNLIN_DEVICE void store(unsigned channel, unsigned tap, unsigned split, float value) const {
    arguments.weight_gradient[(split * m() + channel) * n() + tap] = value;
  }
};

// Output: outputs x images.
struct Linear {
  static constexpr bool kIsRightAlongK = true;
  const LinearArguments& arguments;

  DUNLIN_DEVICE constexpr unsigned m() const { return arguments.outputs; }
  DUNLIN_DEVICE constexpr unsigned n() const { return arguments.images; }
  DUNLIN_DEVICE constexpr unsigned k() const { return arguments.inputs; }
  DUNLIN_DEVICE constexpr unsigned splits() const { return 1; }
  DUNLIN_DEVICE float left(unsigned output, unsigned input) const {
    return arguments.weight[output * k() + input];
  }
  DUNLIN_DEVICE float right(unsigned input, unsigned image) const {
    return arguments.input[image * k() + input];
  }
  DUNLIN_DEVICE void store(unsigned output, unsigned image, unsigned, float value) const {
    arguments.output[image * m() + output] = value + arguments.bias[output];
  }
};

// The gradient of the input: images x inputs.
struct LinearInput {
  static constexpr bool kIsRightAlongK = false;
  const LinearArguments& arguments;

  DUNLIN_DEVICE constexpr unsigned m() const { return arguments.images; }
  DUNLIN_DEVICE constexpr unsigned n() const { return arguments.inputs; }
  DUNLIN_DEVICE constexpr unsigned k() const { return arguments.outputs; }
  DUNLIN_DEVICE constexpr unsigned splits() const { return 1; }
  DUNLIN_DEVICE float left(unsigned image, unsigned output) const {
    return arguments.output_gradient[image * k() + output];
  }
  DUNLIN_DEVICE float right(unsigned output, unsigned input) const {
    return arguments.weight[output * n() + input];
  }
  DUNLIN_DEVICE void store(unsigned image, unsigned input, unsigned, float value) const {
    arguments.input_gradient[image * n() + input] = value;
  }
};

// The gradient of the weights: outputs x inputs.
struct LinearWeight {
  static constexpr bool kIsRightAlongK = false;
  const LinearArguments& arguments;

  DUNLIN_DEVICE constexpr unsigned m() const { return arguments.outputs; }
  DUNLIN_DEVICE constexpr unsigned n() const { return arguments.inputs; }
  DUNLIN_DEVICE constexpr unsigned k() const { return arguments.images; }
  DUNLIN_DEVICE constexpr unsigned splits() const { return 1; }
  DUNLIN_DEVICE float left(unsigned output, unsigned image) const {
    return arguments.output_gradient[image * m() + output];
  }
  DUNLIN_DEVICE float right(unsigned image, unsigned input) const {
    return arguments.input[image * n() + input];
  }
  DUNLIN_DEVICE void store(unsigned output, unsigned input, unsigned, float value) const {
    arguments.weight_gradient[output * n() + input] = value;
  }
};

}  // namespace dunlin::cnn::gpu
