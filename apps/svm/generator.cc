#include "apps/svm/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "apps/svm/evaluate.h"
#include "runtime/bytes.h"
#include "runtime/random.h"

namespace dunlin::svm {
namespace {

// Feature f occurs with a frequency proportional to 1 / (f + kFlat). This is Zipf's law with a
// flatter head, so that rows do not all consist of the same few features.
constexpr double kFlat = 20;
// The planted weights fade with the rank of the feature. Frequent features then carry most of the
// label, which can be learned from rows that never show a rare feature.
constexpr double kFade = 200;
// A row leans to one side: draws of features whose planted weight points to the other side are
// dropped with this probability. This makes the gap between the classes that texts of two kinds
// have. Without it most rows would lie close to the plane.
constexpr double kSlant = 0.5;
// The number of rows on which the planted plane is centered, so that both classes are about equally
// large.
constexpr std::uint64_t kCentringRows = 1001;

enum Stream : std::uint64_t { kRowStream = 1, kWeightStream = 2 };

Status check(const GeneratorOptions& options, Shard shard) {
  const auto invalid = [](std::string text) {
    return Status(Code::kInvalidArgument, std::move(text));
  };
  if (options.rows == 0) return invalid("generated data: rows is 0");
  if (options.nonzeros_per_row == 0 || options.nonzeros_per_row > options.features) {
    return invalid(fmt::format("generated data: {} non-zeros in a row of {} features",
                               options.nonzeros_per_row, options.features));
  }
  if (!(options.flipped >= 0 && options.flipped <= 0.5)) {
    return invalid(fmt::format("generated data: a share of {} flipped labels is outside 0..0.5",
                               options.flipped));
  }
  if (shard.rank >= shard.ranks) {
    return invalid(fmt::format("generated data: shard {} of {}", shard.rank, shard.ranks));
  }
  return Status::ok();
}

class Generator {
 public:
  explicit Generator(const GeneratorOptions& options) : options_(options) {
    double total = 0;
    for (std::uint32_t f = 0; f < options.features; ++f) {
      total += 1 / (f + kFlat);
      cumulative_.push_back(total);
      Random random(options.seed, kWeightStream, f);
      planted_.push_back(static_cast<float>(random.normal() / (1 + f / kFade)));
    }
    std::vector<float> sides;
    for (std::uint64_t i = 0; i < kCentringRows; ++i) sides.push_back(side_of(i));
    const auto median = sides.begin() + kCentringRows / 2;
    std::nth_element(sides.begin(), median, sides.end());
    offset_ = *median;
  }

  // Appends row i of the sequence.
  void append(std::uint64_t i, Dataset& data) {
    Random random(options_.seed, kRowStream, i);
    draw(random);
    float label = side() > offset_ ? 1.0F : -1.0F;
    if (random.uniform() < options_.flipped) label = -label;
    data.indices.insert(data.indices.end(), indices_.begin(), indices_.end());
    data.values.insert(data.values.end(), values_.begin(), values_.end());
    data.row_begin.push_back(data.indices.size());
    data.labels.push_back(label);
  }

 private:
  float side_of(std::uint64_t i) {
    Random random(options_.seed, kRowStream, i);
    draw(random);
    return side();
  }

  // The side of the plane through the origin on which the drawn row lies, and its distance.
  float side() const { return static_cast<float>(dot(planted_.data(), {indices_, values_, 0})); }

  // Draws the features of a row, with repetition, and weighs them.
  void draw(Random& random) {
    draw_features(random);
    std::sort(drawn_.begin(), drawn_.end());
    indices_.clear();
    values_.clear();
    double square = 0;
    for (auto first = drawn_.begin(); first != drawn_.end();) {
      const auto last = std::upper_bound(first, drawn_.end(), *first);
      const double repeats = static_cast<double>(last - first);
      const double rarity = std::log(cumulative_.back() * (*first + kFlat));
      const double value = (1 + std::log(repeats)) * rarity;
      indices_.push_back(*first);
      values_.push_back(static_cast<float>(value));
      square += value * value;
      first = last;
    }
    for (float& value : values_) value = static_cast<float>(value / std::sqrt(square));
  }

  // Draws until the row has its number of different features. This number lies between a quarter
  // and five halves of the mean, and is more often small. Gives up if the missing features are too
  // rare.
  void draw_features(Random& random) {
    const double u = random.uniform();
    const auto wanted = static_cast<std::size_t>(
        std::max(1.0, options_.nonzeros_per_row * (0.25 + 2.25 * u * u) + 0.5));
    const bool leans_up = random.uniform() < 0.5;
    drawn_.clear();
    distinct_.clear();
    for (std::size_t draws = 0; distinct_.size() < wanted && draws < 16 * wanted; ++draws) {
      const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(),
                                          random.uniform() * cumulative_.back());
      const auto feature = static_cast<std::uint32_t>(
          std::min<std::ptrdiff_t>(found - cumulative_.begin(), options_.features - 1));
      if ((planted_[feature] > 0) != leans_up && random.uniform() < kSlant) continue;
      drawn_.push_back(feature);
      const auto place = std::lower_bound(distinct_.begin(), distinct_.end(), feature);
      if (place == distinct_.end() || *place != feature) distinct_.insert(place, feature);
    }
  }

  GeneratorOptions options_;
  std::vector<double> cumulative_;  // the summed frequencies of the features up to each one
  std::vector<float> planted_;
  float offset_ = 0;
  std::vector<std::uint32_t> drawn_;     // the features of the current row, with repetition
  std::vector<std::uint32_t> distinct_;  // the same features, each once
  std::vector<std::uint32_t> indices_;
  std::vector<float> values_;
};

Digest digest_of(const GeneratorOptions& options) {
  const std::string text =
      fmt::format("{} {} {} {} {} {}", options.rows, options.features, options.nonzeros_per_row,
                  options.flipped, options.seed, options.first_row);
  return dunlin::digest_of({as_bytes(text)});
}

}  // namespace

Result<Dataset> generate(const GeneratorOptions& options, Shard shard) {
  DUNLIN_TRY(check(options, shard));
  Dataset data;
  data.features = options.features;
  data.total_rows = options.rows;
  data.whole = digest_of(options);
  Generator generator(options);
  for (std::uint64_t i = shard.rank; i < options.rows; i += shard.ranks) {
    generator.append(options.first_row + i, data);
    data.numbers.push_back(i);
  }
  return data;
}

}  // namespace dunlin::svm
