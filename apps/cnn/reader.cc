#include "apps/cnn/reader.h"

#include <fmt/format.h>

#include "apps/svm/input_file.h"

namespace dunlin::cnn {
namespace {

constexpr int kCifarSide = 32;
constexpr int kCifarChannels = 3;
constexpr std::size_t kCifarPixels = kCifarChannels * kCifarSide * kCifarSide;
constexpr std::size_t kCifarRecord = 1 + kCifarPixels;
constexpr std::uint8_t kCifarClasses = 10;

constexpr std::uint32_t kIdxImages = 0x803;  // unsigned bytes, three dimensions
constexpr std::uint32_t kIdxLabels = 0x801;  // unsigned bytes, one dimension
constexpr std::size_t kIdxImagesHeader = 16;
constexpr std::size_t kIdxLabelsHeader = 8;
// Beyond any data set of this kind. Catches files that only look like they had a header.
constexpr std::uint32_t kMostIdxSide = 4096;

Status corrupted(const std::string& name, std::string_view problem) {
  return {Code::kCorrupted, fmt::format("{}: {}", name, problem)};
}

std::uint32_t big_endian(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<std::uint8_t>(bytes[at + i]);
  return value;
}

// `size` is that of the content behind the header, `expected` what the header says.
Status check_size(const std::string& name, std::uint64_t size, std::uint64_t expected) {
  if (size == expected) return Status::ok();
  return corrupted(name,
                   fmt::format("{}: {} bytes behind the IDX header, which says {}",
                               size < expected ? "is cut short" : "is too long", size, expected));
}

Result<ImageFile> parse_idx_images(const std::string& name, std::string_view bytes) {
  if (bytes.size() < kIdxImagesHeader) return corrupted(name, "is cut short in its IDX header");
  const std::uint32_t count = big_endian(bytes, 4);
  const std::uint32_t rows = big_endian(bytes, 8);
  const std::uint32_t columns = big_endian(bytes, 12);
  if (rows == 0 || columns == 0 || rows > kMostIdxSide || columns > kMostIdxSide) {
    return corrupted(name, fmt::format("images of {} x {} pixels", rows, columns));
  }
  const std::string_view pixels = bytes.substr(kIdxImagesHeader);
  DUNLIN_TRY(check_size(name, pixels.size(), std::uint64_t{count} * rows * columns));
  ImageFile file{ImageFile::Kind::kImages, {}};
  file.content.channels = 1;
  file.content.height = static_cast<int>(rows);
  file.content.width = static_cast<int>(columns);
  file.content.pixels.assign(pixels.begin(), pixels.end());
  return file;
}

Result<ImageFile> parse_idx_labels(const std::string& name, std::string_view bytes) {
  if (bytes.size() < kIdxLabelsHeader) return corrupted(name, "is cut short in its IDX header");
  const std::string_view labels = bytes.substr(kIdxLabelsHeader);
  DUNLIN_TRY(check_size(name, labels.size(), big_endian(bytes, 4)));
  ImageFile file{ImageFile::Kind::kLabels, {}};
  file.content.labels.assign(labels.begin(), labels.end());
  return file;
}

Result<ImageFile> parse_cifar(const std::string& name, std::string_view bytes) {
  // Labels tell this format from others more reliably than sizes do.
  for (std::size_t at = 0; at < bytes.size(); at += kCifarRecord) {
    const auto label = static_cast<std::uint8_t>(bytes[at]);
    if (label >= kCifarClasses) {
      return corrupted(name, fmt::format("is neither IDX nor CIFAR-10: byte {}, where a record's "
                                         "label from 0 to 9 should be, is {}",
                                         at, label));
    }
  }
  if (const std::size_t rest = bytes.size() % kCifarRecord; rest != 0) {
    return corrupted(name, fmt::format("is cut short, or is neither IDX nor CIFAR-10: {} bytes are "
                                       "no multiple of a record's {}",
                                       bytes.size(), kCifarRecord));
  }
  ImageFile file;
  Images& images = file.content;
  images.channels = kCifarChannels;
  images.height = images.width = kCifarSide;
  images.pixels.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size(); at += kCifarRecord) {
    images.labels.push_back(static_cast<std::uint8_t>(bytes[at]));
    const std::string_view pixels = bytes.substr(at + 1, kCifarPixels);
    images.pixels.insert(images.pixels.end(), pixels.begin(), pixels.end());
  }
  return file;
}

// Images and labels of IDX files that have not been paired yet, in the order of the files.
struct Unpaired {
  struct Entry {
    std::string name;
    Images content;
  };
  std::vector<Entry> images;
  std::vector<Entry> labels;
};

Status append(Images& all, const std::string& name, const Images& more) {
  if (all.channels == 0) {
    all.channels = more.channels;
    all.height = more.height;
    all.width = more.width;
  }
  if (!all.has_shape_of(more)) {
    return {Code::kInvalidArgument,
            fmt::format("{}: images of {} x {} x {}, those of the files before it have {} x {} x "
                        "{} (channels, height, width)",
                        name, more.channels, more.height, more.width, all.channels, all.height,
                        all.width)};
  }
  all.pixels.insert(all.pixels.end(), more.pixels.begin(), more.pixels.end());
  all.labels.insert(all.labels.end(), more.labels.begin(), more.labels.end());
  return Status::ok();
}

Status append_pairs(Images& all, Unpaired& unpaired) {
  auto& [images, labels] = unpaired;
  if (images.size() != labels.size()) {
    const auto& alone = images.size() > labels.size() ? images.back() : labels.back();
    return {Code::kInvalidArgument,
            fmt::format("{}: {} IDX files of images and {} of labels: each of images needs its own "
                        "of labels",
                        alone.name, images.size(), labels.size())};
  }
  for (std::size_t i = 0; i < images.size(); ++i) {
    Images& pair = images[i].content;
    pair.labels = std::move(labels[i].content.labels);
    if (pair.pixels.size() != pair.labels.size() * pair.image_bytes()) {
      return {
          Code::kInvalidArgument,
          fmt::format("{} holds {} images, {} holds {} labels", images[i].name,
                      pair.pixels.size() / pair.image_bytes(), labels[i].name, pair.labels.size())};
    }
    DUNLIN_TRY(append(all, images[i].name, pair));
  }
  return Status::ok();
}

}  // namespace

Result<ImageFile> parse_image_file(const std::string& name, std::string_view bytes) {
  if (bytes.empty()) return corrupted(name, "is empty");
  const std::uint32_t magic = bytes.size() >= 4 ? big_endian(bytes, 0) : 0;
  if (magic != kIdxImages && magic != kIdxLabels) return parse_cifar(name, bytes);
  auto idx = magic == kIdxImages ? parse_idx_images(name, bytes) : parse_idx_labels(name, bytes);
  // An airplane whose first pixels are 0, 8 and 3 looks like IDX, except for its size.
  if (!idx && bytes.size() % kCifarRecord == 0) return parse_cifar(name, bytes);
  return idx;
}

Result<Images> read_images(const std::vector<std::string>& files) {
  Images all;
  Unpaired unpaired;
  for (const std::string& name : files) {
    DUNLIN_ASSIGN(const svm::InputFile file, svm::InputFile::open(name));
    DUNLIN_ASSIGN(ImageFile part, parse_image_file(name, file.bytes()));
    switch (part.kind) {
      case ImageFile::Kind::kBoth:
        DUNLIN_TRY(append(all, name, part.content));
        break;
      case ImageFile::Kind::kImages:
        unpaired.images.push_back({name, std::move(part.content)});
        break;
      case ImageFile::Kind::kLabels:
        unpaired.labels.push_back({name, std::move(part.content)});
        break;
    }
  }
  DUNLIN_TRY(append_pairs(all, unpaired));
  if (all.count() == 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: no images", files.empty() ? "no files" : files.front()));
  }
  return all;
}

}  // namespace dunlin::cnn
