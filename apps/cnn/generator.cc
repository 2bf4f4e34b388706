#include "apps/cnn/generator.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/random.h"

namespace dunlin::cnn {
namespace {

// Streams of random numbers. The streams of the images have the numbers of the images.
constexpr std::uint64_t kPatternStream = 0x7061747465726E;

constexpr int kGrid = 8;       // random values of a pattern in each direction
constexpr int kLargest = 96;   // of a pattern's values, in steps of a pixel's value
constexpr int kMostShift = 3;  // pixels in each direction
// Four bytes add up to 510 on average, with a deviation of 148.
constexpr int kBytesMean = 510;
constexpr int kBytesDeviation = 148;

// A pattern of `side` x `side` values. The values at the points of a grid are random, those between
// are linear interpolations. It is periodic, so that it can be shifted.
std::vector<int> pattern_of(const GeneratorOptions& options, int number) {
  Random random(options.seed, kPatternStream, static_cast<std::uint64_t>(number));
  int grid[kGrid][kGrid];
  for (auto& row : grid) {
    for (int& value : row) value = static_cast<int>(random.below(2 * kLargest + 1)) - kLargest;
  }
  const int side = options.side;
  std::vector<int> pattern;
  pattern.reserve(static_cast<std::size_t>(side) * static_cast<std::size_t>(side));
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      const int row = y * kGrid / side;
      const int column = x * kGrid / side;
      const int down = y * kGrid - row * side;  // in units of 1/side of a cell
      const int right = x * kGrid - column * side;
      const auto& upper = grid[row];
      const auto& lower = grid[(row + 1) % kGrid];
      const int next = (column + 1) % kGrid;
      const int above = upper[column] * (side - right) + upper[next] * right;
      const int below = lower[column] * (side - right) + lower[next] * right;
      pattern.push_back((above * (side - down) + below * down) / (side * side));
    }
  }
  return pattern;
}

// Noise of mean 0 and the deviation of the options. 64 random bits give two values.
class Noise {
 public:
  Noise(Random& random, int deviation) : random_(random), deviation_(deviation) {}
  int next() {
    if (!has_more_) bits_ = random_.bits();
    has_more_ = !has_more_;
    int sum = -kBytesMean;
    for (int i = 0; i < 4; ++i, bits_ >>= 8) sum += static_cast<int>(bits_ & 0xFF);
    return sum * deviation_ / kBytesDeviation;
  }

 private:
  Random& random_;
  const int deviation_;
  std::uint64_t bits_ = 0;
  bool has_more_ = false;
};

void append_image(const GeneratorOptions& options, const std::vector<std::vector<int>>& patterns,
                  std::uint64_t index, Images& images) {
  Random random(options.seed, index);
  const std::size_t label = random.below(static_cast<std::uint64_t>(options.classes));
  const int side = options.side;
  const auto shift = [&] { return static_cast<int>(random.below(2 * kMostShift + 1)); };
  const int right = shift();
  const int down = shift();
  const int strength = 60 + static_cast<int>(random.below(41));  // percent
  Noise noise(random, options.noise);
  for (int channel = 0; channel < options.channels; ++channel) {
    const auto& pattern = patterns[label * static_cast<std::size_t>(options.channels) +
                                   static_cast<std::size_t>(channel)];
    for (int y = 0; y < side; ++y) {
      for (int x = 0; x < side; ++x) {
        const int at = (y + down) % side * side + (x + right) % side;
        const int value =
            128 + pattern[static_cast<std::size_t>(at)] * strength / 100 + noise.next();
        images.pixels.push_back(static_cast<std::uint8_t>(std::clamp(value, 0, 255)));
      }
    }
  }
  images.labels.push_back(static_cast<std::uint8_t>(label));
}

Status check_range(const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("generated images: {} {}, not from {} to {}", what, value, least, most)};
}

}  // namespace

Result<Images> generate(const GeneratorOptions& options) {
  constexpr std::int64_t kMostImages = 10'000'000;
  DUNLIN_TRY(check_range("count", static_cast<std::int64_t>(options.count), 1, kMostImages));
  DUNLIN_TRY(check_range("side", options.side, 8, 32));
  DUNLIN_TRY(check_range("classes", options.classes, 2, 256));
  DUNLIN_TRY(check_range("noise", options.noise, 0, 255));
  if (options.channels != 1) DUNLIN_TRY(check_range("channels", options.channels, 3, 3));
  std::vector<std::vector<int>> patterns;
  for (int i = 0; i < options.classes * options.channels; ++i) {
    patterns.push_back(pattern_of(options, i));
  }
  Images images;
  images.channels = options.channels;
  images.height = images.width = options.side;
  images.pixels.reserve(options.count * images.image_bytes());
  for (std::uint64_t i = 0; i < options.count; ++i) {
    append_image(options, patterns, options.first + i, images);
  }
  return images;
}

}  // namespace dunlin::cnn
