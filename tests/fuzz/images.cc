// Files of images, IDX and CIFAR-10 (apps/cnn/reader.h). What is read has as many pixels as it says
// and is the file's content.
#include "apps/cnn/reader.h"
#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace cnn;

void big_endian(Bytes& bytes, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes.push_back(static_cast<std::byte>(value >> shift));
}

void append(Bytes& bytes, std::span<const std::uint8_t> more) {
  for (const std::uint8_t value : more) bytes.push_back(static_cast<std::byte>(value));
}

Bytes idx_images(const Images& images, std::uint32_t count) {
  Bytes bytes;
  for (const std::uint32_t value : {0x803U, count, static_cast<std::uint32_t>(images.height),
                                    static_cast<std::uint32_t>(images.width)}) {
    big_endian(bytes, value);
  }
  append(bytes, images.pixels);
  return bytes;
}

Bytes idx_labels(const Images& images) {
  Bytes bytes;
  big_endian(bytes, 0x801);
  big_endian(bytes, static_cast<std::uint32_t>(images.labels.size()));
  append(bytes, images.labels);
  return bytes;
}

Bytes cifar(const Images& images) {
  Bytes bytes;
  for (std::size_t i = 0; i < images.count(); ++i) {
    bytes.push_back(static_cast<std::byte>(images.labels[i]));
    append(bytes, images.image(i));
  }
  return bytes;
}

void check(const Exact& bytes) {
  const auto file = parse_image_file("f", bytes.text());
  if (!file) return;
  const Images& images = file->content;
  if (file->kind == ImageFile::Kind::kLabels) {
    FUZZ_CHECK(images.pixels.empty() && equal(idx_labels(images), bytes.bytes()));
    return;
  }
  FUZZ_CHECK(images.channels > 0 && images.height > 0 && images.width > 0);
  FUZZ_CHECK(images.pixels.size() % images.image_bytes() == 0);
  const std::size_t count = images.pixels.size() / images.image_bytes();
  if (file->kind == ImageFile::Kind::kImages) {
    FUZZ_CHECK(images.labels.empty());
    FUZZ_CHECK(equal(idx_images(images, static_cast<std::uint32_t>(count)), bytes.bytes()));
    return;
  }
  FUZZ_CHECK(images.count() == count && classes_of(images) <= 10);
  FUZZ_CHECK(equal(cifar(images), bytes.bytes()));
}

}  // namespace

std::vector<Seed> seeds() {
  Images small{1, 3, 4, std::vector<std::uint8_t>(24, 9), {1, 7}};
  Images color{3, 32, 32, std::vector<std::uint8_t>(3072, 5), {3}};
  return {{"idx_images", idx_images(small, 2)},
          {"idx_labels", idx_labels(small)},
          {"cifar", cifar(color)}};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dunlin::fuzz::check(dunlin::fuzz::Exact(std::as_bytes(std::span(data, size))));
  return 0;
}
