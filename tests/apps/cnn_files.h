// Image files in memory, as the data sets have them.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/random.h"
#include "tests/support/files.h"

namespace dunlin::cnn {

inline std::string big_endian(std::uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xFF);
  return text;
}

inline std::string random_bytes(Random& random, std::size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.below(256));
  return bytes;
}

// `count` records, labeled 0, 1, ..., 9, 0, ...
inline std::string cifar_file(std::size_t count, std::uint64_t seed = 1) {
  Random random(seed);
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes += static_cast<char>(i % 10);
    bytes += random_bytes(random, 3072);
  }
  return bytes;
}

inline std::string idx_images(std::uint32_t count, std::uint32_t rows, std::uint32_t columns) {
  Random random(7);
  return big_endian(0x803) + big_endian(count) + big_endian(rows) + big_endian(columns) +
         random_bytes(random, std::size_t{count} * rows * columns);
}

inline std::string idx_labels(std::uint32_t count) {
  std::string labels;
  for (std::uint32_t i = 0; i < count; ++i) labels += static_cast<char>(i % 7);
  return big_endian(0x801) + big_endian(count) + labels;
}

using testing::written;

}  // namespace dunlin::cnn
