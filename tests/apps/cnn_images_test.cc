// Tests generated images, shards, and the batches that networks get.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "apps/cnn/batches.h"
#include "apps/cnn/generator.h"

namespace dunlin::cnn {
namespace {

GeneratorOptions few(std::uint64_t count) {
  GeneratorOptions options;
  options.count = count;
  return options;
}

TEST(CnnGenerator, ImagesFollowFromOptionsAndTheirNumbers) {
  const Images all = generate(few(50)).value();
  EXPECT_EQ(generate(few(50)).value(), all);
  GeneratorOptions later = few(20);
  later.first = 30;
  const Images tail = generate(later).value();
  for (std::size_t i = 0; i < tail.count(); ++i) {
    EXPECT_TRUE(std::ranges::equal(tail.image(i), all.image(30 + i)));
    EXPECT_EQ(tail.labels[i], all.labels[30 + i]);
  }
  GeneratorOptions other = few(50);
  other.seed = 2;
  EXPECT_NE(digest_of(generate(other).value()), digest_of(all));
}

// Runs that are compared on different hosts use the same images.
TEST(CnnGenerator, IsTheSameOnEveryMachine) {
  const Digest digest = digest_of(generate(few(100)).value());
  EXPECT_EQ(std::to_integer<int>(digest[0]), 233);
  EXPECT_EQ(std::to_integer<int>(digest[1]), 60);
  EXPECT_EQ(std::to_integer<int>(digest[31]), 95);
}

TEST(CnnGenerator, MakesImagesOfAllShapesAndClasses) {
  GeneratorOptions options = few(500);
  options.channels = 1;
  options.side = 28;
  options.classes = 5;
  const Images images = generate(options).value();
  EXPECT_EQ(images.pixels.size(), 500U * 28 * 28);
  EXPECT_EQ(classes_of(images), 5);
  for (std::uint8_t label = 0; label < 5; ++label) {
    EXPECT_GT(std::ranges::count(images.labels, label), 60);
  }
}

// Without noise, most images are nearer to the mean of their class than to those of other classes.
// The images can be learned.
TEST(CnnGenerator, ClassesDiffer) {
  GeneratorOptions options = few(400);
  options.noise = 0;
  const Images images = generate(options).value();
  const std::size_t bytes = images.image_bytes();
  std::map<int, std::vector<double>> means;
  for (std::size_t i = 0; i < images.count(); ++i) {
    auto& mean = means[images.labels[i]];
    mean.resize(bytes);
    const auto share =
        1.0 / static_cast<double>(std::ranges::count(images.labels, images.labels[i]));
    for (std::size_t k = 0; k < bytes; ++k) mean[k] += share * images.image(i)[k];
  }
  int right = 0;
  for (std::size_t i = 0; i < images.count(); ++i) {
    const auto distance = [&](const auto& entry) {
      double sum = 0;
      for (std::size_t k = 0; k < bytes; ++k) {
        sum += std::pow(entry.second[k] - images.image(i)[k], 2);
      }
      return sum;
    };
    const auto nearest = std::ranges::min_element(means, {}, distance);
    right += nearest->first == images.labels[i] ? 1 : 0;
  }
  EXPECT_GT(right, 360);
}

TEST(CnnGenerator, RefusesWhatItDoesNotMake) {
  const auto refused = [](auto change) {
    GeneratorOptions options = few(1);
    change(options);
    return generate(options).status().code() == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](auto& options) { options.count = 0; }));
  EXPECT_TRUE(refused([](auto& options) { options.count = ~std::uint64_t{0}; }));
  EXPECT_TRUE(refused([](auto& options) { options.channels = 2; }));
  EXPECT_TRUE(refused([](auto& options) { options.side = 33; }));
  EXPECT_TRUE(refused([](auto& options) { options.classes = 257; }));
  EXPECT_TRUE(refused([](auto& options) { options.noise = -1; }));
}

TEST(CnnImages, ShardsAreDealtOut) {
  const Images all = generate(few(23)).value();
  std::size_t total = 0;
  for (int worker = 0; worker < 4; ++worker) {
    const Images shard = shard_of(all, worker, 4);
    for (std::size_t i = 0; i < shard.count(); ++i) {
      const std::size_t at = i * 4 + static_cast<std::size_t>(worker);
      EXPECT_EQ(shard.labels[i], all.labels[at]);
      EXPECT_TRUE(std::ranges::equal(shard.image(i), all.image(at)));
    }
    total += shard.count();
  }
  EXPECT_EQ(total, 23U);
}

TEST(CnnImages, NormalizedChannelsHaveMeanZeroAndDeviationOne) {
  const Images images = generate(few(60)).value();
  Batches batches(images, normalization_of(images), {}, 1);
  const Batch batch = batches.in_order(0, images.count());
  constexpr std::size_t kPlane = kInputSide * kInputSide;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    double sum = 0;
    double squares = 0;
    for (std::size_t i = 0; i < images.count(); ++i) {
      for (const float value : batch.pixels.subspan((i * 3 + channel) * kPlane, kPlane)) {
        sum += value;
        squares += double{value} * value;
      }
    }
    const double values = static_cast<double>(images.count() * kPlane);
    EXPECT_NEAR(sum / values, 0, 1e-4);
    EXPECT_NEAR(squares / values, 1, 1e-3);
  }
  Images gray;  // of one value: no division by nothing
  gray.channels = gray.height = gray.width = 1;
  gray.pixels = {7, 7};
  gray.labels = {0, 1};
  EXPECT_EQ(normalization_of(gray)(0, 7), 0);
}

// 40 images that differ in their only pixel.
Images numbered() {
  Images images;
  images.channels = images.height = images.width = 1;
  for (std::uint8_t i = 0; i < 40; ++i) {
    images.pixels.push_back(i + 1);
    images.labels.push_back(i);
  }
  return images;
}
const Normalization kAsIs{{0}, {1.0F / 255}};  // a pixel's value itself

TEST(CnnBatches, AnEpochShowsEveryImageOnceInAnOrderOfItsOwn) {
  const Images images = numbered();
  Batches::Options options;
  options.size = 8;
  Batches batches(images, kAsIs, options, 5);
  std::vector<std::vector<std::int64_t>> orders;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t>& order = orders.emplace_back();
    for (std::uint64_t i = 0; i < 5; ++i) {
      const Batch batch = batches.at(epoch * 5 + i);
      ASSERT_EQ(batch.labels.size(), 8U);
      order.insert(order.end(), batch.labels.begin(), batch.labels.end());
    }
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), 40U);
  }
  EXPECT_EQ(std::set(orders.begin(), orders.end()).size(), 3U);
  // A single iteration, as a resumed run asks for it.
  Batches again(images, kAsIs, options, 5);
  EXPECT_TRUE(std::ranges::equal(again.at(12).labels, std::span(orders[2]).subspan(16, 8)));
  options.worker = 1;
  Batches other(images, kAsIs, options, 5);
  EXPECT_FALSE(std::ranges::equal(other.at(12).labels, std::span(orders[2]).subspan(16, 8)));
}

TEST(CnnBatches, SmallImagesLieInTheMiddleOfBlack) {
  const Images images = numbered();
  Batches batches(images, kAsIs, {}, 1);
  const Batch batch = batches.in_order(3, 2);
  ASSERT_EQ(batch.pixels.size(), 2U * kInputSide * kInputSide);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto image = batch.pixels.subspan(i * kInputSide * kInputSide, kInputSide * kInputSide);
    EXPECT_EQ(std::lround(image[15 * kInputSide + 15]), static_cast<long>(4 + i));
    EXPECT_EQ(std::ranges::count(image, 0.0F), kInputSide * kInputSide - 1);
  }
}

TEST(CnnBatches, AugmentedImagesAreMovedAndMirroredAndSeldomTheSame) {
  const Images images = numbered();
  Batches::Options options;
  options.size = 40;
  options.is_augmented = true;
  Batches batches(images, kAsIs, options, 1);
  std::set<std::size_t> places;
  for (std::uint64_t iteration = 0; iteration < 50; ++iteration) {
    const Batch batch = batches.at(iteration);
    const std::vector<float> first(batch.pixels.begin(), batch.pixels.end());
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (first[i] == 0) continue;
      const std::size_t at = i % (kInputSide * kInputSide);
      places.insert(at);
      EXPECT_NEAR(static_cast<double>(at / kInputSide), 15, 4);
      EXPECT_NEAR(static_cast<double>(at % kInputSide), 15.5, 4.5);  // mirrored: around 16
    }
    EXPECT_TRUE(std::ranges::equal(batches.at(iteration).pixels, first));
  }
  EXPECT_EQ(places.size(), 9U * 10);
}

TEST(CnnBatches, ImagesThatNetworksDoNotTakeAreRefused) {
  Images images = numbered();
  EXPECT_TRUE(check_images(images).is_ok());
  images.channels = 2;
  EXPECT_EQ(check_images(images).code(), Code::kInvalidArgument);
  images.channels = 3;
  images.width = 33;
  EXPECT_EQ(check_images(images).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace dunlin::cnn
