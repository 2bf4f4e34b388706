#include "apps/cnn/batches.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "runtime/random.h"

namespace dunlin::cnn {
namespace {

// Streams of random numbers, for the order and for the changes to images.
constexpr std::uint64_t kOrderStream = 0x6F72646572;
constexpr std::uint64_t kChangeStream = 0x6368616E6765;
constexpr int kMostMove = 4;
constexpr std::uint64_t kNoEpoch = ~std::uint64_t{0};
constexpr std::size_t kValues = 256;

}  // namespace

Status check_images(const Images& images) {
  if (images.channels != 1 && images.channels != 3) {
    return {Code::kInvalidArgument,
            fmt::format("images of {} channels: the networks take 1 or 3", images.channels)};
  }
  if (images.height > kInputSide || images.width > kInputSide) {
    return {Code::kInvalidArgument,
            fmt::format("images of {} x {} pixels: the networks take {} x {} at most",
                        images.height, images.width, kInputSide, kInputSide)};
  }
  return Status::ok();
}

Batches::Batches(const Images& images, const Normalization& normalization, const Options& options,
                 std::uint64_t per_epoch)
    : images_(images),
      options_(options),
      per_epoch_(per_epoch),
      order_(images.count()),
      epoch_(kNoEpoch) {
  for (int channel = 0; channel < images.channels; ++channel) {
    for (std::size_t value = 0; value < kValues; ++value) {
      values_.push_back(normalization(channel, static_cast<std::uint8_t>(value)));
    }
  }
}

void Batches::draw_order(std::uint64_t epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  Random random(options_.seed ^ kOrderStream, epoch, static_cast<std::uint64_t>(options_.worker));
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  for (std::size_t i = order_.size(); i > 1; --i) {
    std::swap(order_[i - 1], order_[static_cast<std::size_t>(random.below(i))]);
  }
}

Batch Batches::at(std::uint64_t iteration) {
  draw_order(iteration / per_epoch_);
  const auto first = static_cast<std::size_t>(iteration % per_epoch_) * options_.size;
  Random random(options_.seed ^ kChangeStream, iteration,
                static_cast<std::uint64_t>(options_.worker));
  pixels_.clear();
  labels_.clear();
  for (std::size_t i = first; i < first + options_.size; ++i) {
    Change change;
    if (options_.is_augmented) {
      change.down = static_cast<int>(random.below(2 * kMostMove + 1)) - kMostMove;
      change.right = static_cast<int>(random.below(2 * kMostMove + 1)) - kMostMove;
      change.is_mirrored = random.below(2) == 1;
    }
    append(order_[i], change);
  }
  return {pixels_, labels_};
}

Batch Batches::in_order(std::size_t first, std::size_t count) {
  pixels_.clear();
  labels_.clear();
  for (std::size_t i = first; i < first + count; ++i) append(i, {});
  return {pixels_, labels_};
}

// Pixels beyond the image are black.
void Batches::append(std::size_t image, const Change& change) {
  const std::uint8_t* plane = images_.image(image).data();
  const int top = (kInputSide - images_.height) / 2 + change.down;
  const int left = (kInputSide - images_.width) / 2 + change.right;
  for (int channel = 0; channel < images_.channels; ++channel) {
    const float* const values = values_.data() + static_cast<std::size_t>(channel) * kValues;
    for (int y = 0; y < kInputSide; ++y) {
      const int row = y - top;
      const bool is_row = row >= 0 && row < images_.height;
      for (int x = 0; x < kInputSide; ++x) {
        const int column = (change.is_mirrored ? kInputSide - 1 - x : x) - left;
        const bool is_inside = is_row && column >= 0 && column < images_.width;
        pixels_.push_back(values[is_inside ? plane[row * images_.width + column] : 0]);
      }
    }
    plane += images_.height * images_.width;
  }
  labels_.push_back(images_.labels[image]);
}

}  // namespace dunlin::cnn
