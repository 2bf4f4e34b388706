// Generates images that a network can learn to tell apart. Each class has a smooth pattern of its
// own in each channel. An image shows the pattern shifted by some pixels, with varying strength,
// and under noise.
//
// Image i depends on the options and i alone, so that images beyond the training set are a test
// set. It uses integers only and gives the same bytes on every host. Stateless; any thread.
#pragma once

#include <cstdint>

#include "apps/cnn/images.h"
#include "runtime/status.h"

namespace dunlin::cnn {

struct GeneratorOptions {
  std::uint64_t count = 10'000;
  int channels = 3;  // 1 or 3
  int side = 32;     // pixels, 8 to 32
  int classes = 10;  // 2 to 256
  int noise = 64;    // standard deviation, in steps of a pixel's value; 0 to 255
  std::uint64_t seed = 1;
  std::uint64_t first = 0;  // `count` images from here on
};

// kInvalidArgument for options beyond these ranges.
Result<Images> generate(const GeneratorOptions& options);

}  // namespace dunlin::cnn
