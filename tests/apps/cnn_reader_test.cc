#include "apps/cnn/reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "apps/cnn/generator.h"
#include "tests/apps/cnn_files.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"

#if DUNLIN_HAVE_ZLIB
#include "tests/support/gzip.h"
#endif

namespace dunlin::cnn {
namespace {

std::string message_of(const std::string& bytes) {
  return std::string(parse_image_file("file", bytes).status().message());
}

TEST(CnnReader, ReadsCifarRecords) {
  const std::string bytes = cifar_file(13);
  const auto file = parse_image_file("file", bytes);
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  EXPECT_EQ(file->kind, ImageFile::Kind::kBoth);
  const Images& images = file->content;
  EXPECT_EQ(images.channels, 3);
  EXPECT_EQ(images.height, 32);
  EXPECT_EQ(images.width, 32);
  ASSERT_EQ(images.count(), 13U);
  for (std::size_t i = 0; i < images.count(); ++i) {
    EXPECT_EQ(images.labels[i], i % 10);
    const auto image = images.image(i);
    ASSERT_EQ(image.size(), 3072U);
    for (std::size_t k = 0; k < image.size(); ++k) {
      ASSERT_EQ(image[k], static_cast<std::uint8_t>(bytes[i * 3073 + 1 + k]));
    }
  }
}

TEST(CnnReader, PairsIdxFilesOfImagesAndLabelsInWhateverOrder) {
  const testing::TempFolder folder;
  const std::string images = written(folder.file("images"), idx_images(9, 28, 20));
  const std::string labels = written(folder.file("labels"), idx_labels(9));
  const auto one = read_images({images, labels});
  ASSERT_TRUE(one.is_ok()) << one.status().to_string();
  EXPECT_EQ(one->channels, 1);
  EXPECT_EQ(one->height, 28);
  EXPECT_EQ(one->width, 20);
  EXPECT_EQ(one->count(), 9U);
  EXPECT_EQ(one->labels[8], 1);
  EXPECT_EQ(one->pixels.size(), 9U * 28 * 20);
  EXPECT_EQ(read_images({labels, images}).value(), *one);
  EXPECT_EQ(read_images({images, images, labels, labels}).value().count(), 18U);
}

// An airplane (class 0) that begins with pixels 0, 8, 3 has the magic number of IDX.
TEST(CnnReader, AnImageThatBeginsLikeIdxIsAnImage) {
  std::string bytes = cifar_file(2);
  bytes.replace(0, 4, big_endian(0x803));
  const auto file = parse_image_file("file", bytes);
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  EXPECT_EQ(file->content.count(), 2U);
  EXPECT_EQ(file->content.pixels[1], 8);
}

TEST(CnnReader, EveryTruncationIsNoticed) {
  for (const std::string& good : {idx_images(3, 5, 7), idx_labels(30)}) {
    for (std::size_t length = 0; length < good.size(); ++length) {
      const auto status = parse_image_file("file", good.substr(0, length)).status();
      ASSERT_EQ(status.code(), Code::kCorrupted) << length;
      ASSERT_TRUE(status.message().starts_with("file: ")) << status.message();
    }
    EXPECT_TRUE(parse_image_file("file", good).is_ok());
    EXPECT_EQ(parse_image_file("file", good + "x").status().code(), Code::kCorrupted);
  }
  const std::string records = cifar_file(2);
  for (std::size_t length = 0; length < records.size(); ++length) {
    ASSERT_EQ(parse_image_file("file", records.substr(0, length)).is_ok(), length == 3073);
  }
}

TEST(CnnReader, SaysWhatIsWrong) {
  EXPECT_EQ(message_of(""), "file: is empty");
  EXPECT_EQ(message_of(cifar_file(2).substr(0, 4000)),
            "file: is cut short, or is neither IDX nor CIFAR-10: 4000 bytes are no multiple of a "
            "record's 3073");
  EXPECT_EQ(message_of("hello"),
            "file: is neither IDX nor CIFAR-10: byte 0, where a record's label from 0 to 9 should "
            "be, is 104");
  EXPECT_EQ(message_of(idx_labels(5).substr(0, 11)),
            "file: is cut short: 3 bytes behind the IDX header, which says 5");
  EXPECT_EQ(message_of(idx_images(1, 2, 2) + "x"),
            "file: is too long: 5 bytes behind the IDX header, which says 4");
  EXPECT_EQ(message_of(big_endian(0x803) + big_endian(1) + big_endian(0) + big_endian(9)),
            "file: images of 0 x 9 pixels");
  // 2^32 - 1 images of the largest size would be 2^56 bytes.
  EXPECT_EQ(parse_image_file("file", big_endian(0x803) + big_endian(0xFFFFFFFF) + big_endian(4096) +
                                         big_endian(4096))
                .status()
                .code(),
            Code::kCorrupted);
}

TEST(CnnReader, FilesThatDoNotGoTogetherAreRefused) {
  const testing::TempFolder folder;
  const std::string images = written(folder.file("images"), idx_images(9, 28, 28));
  const std::string wider = written(folder.file("wider"), idx_images(9, 28, 29));
  const std::string labels = written(folder.file("labels"), idx_labels(9));
  const std::string fewer = written(folder.file("fewer"), idx_labels(8));
  const std::string cifar = written(folder.file("cifar"), cifar_file(2));
  const std::string none = written(folder.file("none"), idx_images(0, 28, 28));
  const std::string no_labels = written(folder.file("no_labels"), idx_labels(0));
  for (const auto& [files, text] :
       {std::pair{std::vector{images}, "1 IDX files of images and 0 of labels"},
        {std::vector{labels, images, labels}, "1 IDX files of images and 2 of labels"},
        {std::vector{images, fewer}, "holds 9 images"},
        {std::vector{images, labels, wider, labels}, "1 x 28 x 29"},
        {std::vector{cifar, images, labels}, "1 x 28 x 28"},
        {std::vector{none, no_labels}, "no images"}}) {
    const Status status = read_images(files).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(text), std::string_view::npos) << status.message();
  }
  EXPECT_EQ(read_images({folder.file("absent")}).status().code(), Code::kNotFound);
  EXPECT_EQ(read_images({}).status().code(), Code::kInvalidArgument);
}

// For any bytes, the reader returns images of the right size, or an error that names the file.
TEST(CnnReader, WhateverTheBytes) {
  const std::array seeds{cifar_file(3), idx_images(4, 6, 5), idx_labels(40)};
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    std::string bytes = seeds[random.below(seeds.size())];
    for (std::uint64_t edits = 1 + random.below(4); edits > 0 && !bytes.empty(); --edits) {
      // Changes of headers are the interesting ones.
      const std::size_t near = std::min<std::size_t>(bytes.size(), 20);
      const std::size_t at = random.below(random.below(2) == 0 ? near : bytes.size());
      switch (random.below(4)) {
        case 0:
          bytes[at] = static_cast<char>(random.below(256));
          break;
        case 1:
          bytes.erase(at, 1 + random.below(8));
          break;
        case 2:
          bytes.insert(at, random_bytes(random, 1 + random.below(8)));
          break;
        case 3:
          bytes.resize(at);
          break;
      }
    }
    const auto file = parse_image_file("file", bytes);
    if (!file) {
      ASSERT_EQ(file.status().code(), Code::kCorrupted) << "seed " << seed;
      ASSERT_TRUE(file.status().message().starts_with("file: ")) << "seed " << seed;
      continue;
    }
    const Images& images = file->content;
    if (file->kind == ImageFile::Kind::kBoth) {
      ASSERT_EQ(images.pixels.size(), images.count() * images.image_bytes()) << "seed " << seed;
      ASSERT_LE(classes_of(images), 10) << "seed " << seed;
    } else if (file->kind == ImageFile::Kind::kImages) {
      ASSERT_EQ(images.pixels.size() % images.image_bytes(), 0U) << "seed " << seed;
    }
  }
}

#if DUNLIN_HAVE_ZLIB
TEST(CnnReader, UnpacksGzipAndNoticesDamage) {
  const testing::TempFolder folder;
  // Zeros pack so well that the buffer has to grow.
  const std::string zeros(3073 * 100, '\0');
  const std::string packed = testing::gzip_of(zeros);
  EXPECT_EQ(read_images({written(folder.file("zeros"), packed)}).value().count(), 100U);
  // Several members in a row are one file.
  const std::string twice = written(folder.file("twice"), packed + testing::gzip_of(cifar_file(3)));
  EXPECT_EQ(read_images({twice}).value().count(), 103U);
  const std::string small = testing::gzip_of(cifar_file(1));
  for (std::size_t length = 2; length < small.size(); length += 41) {
    const auto status =
        read_images({written(folder.file("cut"), small.substr(0, length))}).status();
    ASSERT_EQ(status.code(), Code::kCorrupted) << length;
    ASSERT_EQ(status.message(), folder.file("cut") + ": its gzip stream is cut short") << length;
  }
  std::string damaged = small;
  damaged[damaged.size() - 6] ^= 1;  // in its checksum
  EXPECT_EQ(read_images({written(folder.file("damaged"), damaged)}).status().message(),
            folder.file("damaged") + ": its gzip stream is damaged");
  EXPECT_EQ(read_images({written(folder.file("junk"), small + "junk")}).status().code(),
            Code::kCorrupted);
}
#endif

// The content of the data sets, as their SOURCE.txt says.
TEST(CnnReader, ReadsTheRealDataSets) {
  const std::filesystem::path data = testing::data_set("");
  if (!std::filesystem::exists(data / "cifar10") ||
      !std::filesystem::exists(data / "fashion-mnist")) {
    GTEST_SKIP() << "no data sets in " << data;
  }
  const auto cifar = read_images({data / "cifar10/cifar10_test_a_2000.bin.xz"});
  if (cifar.status().code() == Code::kUnavailable) GTEST_SKIP() << cifar.status().to_string();
  ASSERT_TRUE(cifar.is_ok()) << cifar.status().to_string();
  EXPECT_EQ(cifar->count(), 2000U);
  for (std::uint8_t label = 0; label < 10; ++label) {
    EXPECT_EQ(std::ranges::count(cifar->labels, label), 200);
  }
  const auto fashion = read_images({data / "fashion-mnist/t10k-images-idx3-ubyte.gz",
                                    data / "fashion-mnist/t10k-labels-idx1-ubyte.gz"});
  if (fashion.status().code() == Code::kUnavailable) GTEST_SKIP() << fashion.status().to_string();
  ASSERT_TRUE(fashion.is_ok()) << fashion.status().to_string();
  EXPECT_EQ(fashion->count(), 10000U);
  EXPECT_EQ(fashion->channels, 1);
  EXPECT_EQ(fashion->width, 28);
  EXPECT_EQ(std::ranges::count(fashion->labels, 9), 1000);
}

}  // namespace
}  // namespace dunlin::cnn
