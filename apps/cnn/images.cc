#include "apps/cnn/images.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace dunlin::cnn {

Images shard_of(const Images& set, int worker, int workers) {
  Images shard;
  shard.channels = set.channels;
  shard.height = set.height;
  shard.width = set.width;
  const auto step = static_cast<std::size_t>(workers);
  for (auto i = static_cast<std::size_t>(worker); i < set.count(); i += step) {
    const auto image = set.image(i);
    shard.pixels.insert(shard.pixels.end(), image.begin(), image.end());
    shard.labels.push_back(set.labels[i]);
  }
  return shard;
}

int classes_of(const Images& set) {
  const auto largest = std::ranges::max_element(set.labels);
  return largest == set.labels.end() ? 0 : *largest + 1;
}

Digest digest_of(const Images& set) {
  const std::array shape{set.channels, set.height, set.width};
  return dunlin::digest_of({std::as_bytes(std::span(shape)), std::as_bytes(std::span(set.pixels)),
                            std::as_bytes(std::span(set.labels))});
}

Normalization normalization_of(const Images& set) {
  const auto channels = static_cast<std::size_t>(set.channels);
  const std::size_t plane = set.image_bytes() / channels;
  // Integers, so that the sums are exact.
  std::vector<std::uint64_t> sums(channels);
  std::vector<std::uint64_t> squares(channels);
  for (std::size_t i = 0; i < set.pixels.size(); ++i) {
    const std::size_t channel = i / plane % channels;
    const std::uint64_t value = set.pixels[i];
    sums[channel] += value;
    squares[channel] += value * value;
  }
  const double values = static_cast<double>(set.count()) * static_cast<double>(plane);
  Normalization found;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const double mean = static_cast<double>(sums[channel]) / values;
    const double variance = static_cast<double>(squares[channel]) / values - mean * mean;
    found.mean.push_back(static_cast<float>(mean / 255));
    found.deviation.push_back(static_cast<float>(std::sqrt(std::max(variance, 1.0)) / 255));
  }
  return found;
}

}  // namespace dunlin::cnn
