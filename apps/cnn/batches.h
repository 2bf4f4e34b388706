// Batches: the input of a network, as batches of normalized images that are padded to 32 x 32. The
// order is drawn anew for each pass over a worker's images.
//
// The batch of an iteration depends on the options and its number alone. A run that was interrupted
// therefore continues with the same batches. Owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/cnn/images.h"
#include "runtime/status.h"

namespace dunlin::cnn {

// The size of the networks' input, in each direction.
inline constexpr int kInputSide = 32;

// Pixels: image after image, channel after channel. Valid until the next batch is made.
struct Batch {
  std::span<const float> pixels;
  std::span<const std::int64_t> labels;
};

// kInvalidArgument for images that are too large, or have neither 1 nor 3 channels.
Status check_images(const Images& images);

class Batches {
 public:
  struct Options {
    std::size_t size = 32;
    std::uint64_t seed = 1;
    int worker = 0;
    // Moves an image by up to four pixels in each direction, and mirrors it half the time (He et
    // al., section 4.2).
    bool is_augmented = false;
  };

  // `per_epoch` is the number of batches of a pass, which is at least one. All batches are whole,
  // so that it is at most images.count() / size; the images left out differ from pass to pass.
  // `images` have passed check_images() and outlive this object.
  Batches(const Images& images, const Normalization& normalization, const Options& options,
          std::uint64_t per_epoch);

  std::uint64_t per_epoch() const { return per_epoch_; }
  Batch at(std::uint64_t iteration);

  // Images first, ..., first + count - 1, in their own order and unchanged, for tests.
  Batch in_order(std::size_t first, std::size_t count);

 private:
  struct Change {
    int down = 0;
    int right = 0;
    bool is_mirrored = false;
  };
  void draw_order(std::uint64_t epoch);
  void append(std::size_t image, const Change& change);

  const Images& images_;
  Options options_;
  std::uint64_t per_epoch_;
  std::vector<float> values_;       // of each pixel's value, 256 for each channel
  std::vector<std::size_t> order_;  // of the pass epoch_
  std::uint64_t epoch_;
  std::vector<float> pixels_;
  std::vector<std::int64_t> labels_;
};

}  // namespace dunlin::cnn
