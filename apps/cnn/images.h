// Labeled images as they lie in files and in memory: bytes, image after image, channel after
// channel, row after row. Plain data; any thread may read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/digest.h"

namespace dunlin::cnn {

struct Images {
  int channels = 0;
  int height = 0;
  int width = 0;
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;

  std::size_t count() const { return labels.size(); }
  std::size_t image_bytes() const {
    return static_cast<std::size_t>(channels) * static_cast<std::size_t>(height) *
           static_cast<std::size_t>(width);
  }
  std::span<const std::uint8_t> image(std::size_t index) const {
    return std::span(pixels).subspan(index * image_bytes(), image_bytes());
  }
  bool has_shape_of(const Images& other) const {
    return channels == other.channels && height == other.height && width == other.width;
  }
  bool operator==(const Images&) const = default;
};

// The part of `worker`: image i of the set belongs to worker i % workers.
Images shard_of(const Images& set, int worker, int workers);

// One more than the largest label; 0 without images.
int classes_of(const Images& set);

// Equal for equal sets, and different for different ones unless hashes collide.
Digest digest_of(const Images& set);

// The mean and the deviation of each channel over a set, as shares of 255.
struct Normalization {
  std::vector<float> mean;       // of each channel
  std::vector<float> deviation;  // at least 1/255, so that it can divide

  float operator()(int channel, std::uint8_t value) const {
    const auto at = static_cast<std::size_t>(channel);
    return (static_cast<float>(value) / 255.0F - mean[at]) / deviation[at];
  }
};
// `set` must not be empty.
Normalization normalization_of(const Images& set);

}  // namespace dunlin::cnn
