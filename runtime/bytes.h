// ByteWriter and ByteReader serialize the small control structures that processes exchange. Numbers
// are little-endian, and a length precedes contents of variable size. A read past the end returns
// zeros or nothing and is remembered: read everything, then check ok() once.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dunlin {

using Bytes = std::vector<std::byte>;

static_assert(std::endian::native == std::endian::little,
              "on a big-endian host, ByteWriter and ByteReader must swap bytes");

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class ByteWriter {
 public:
  template <std::integral T>
  ByteWriter& number(T value) {
    const auto raw = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
    return *this;
  }
  // A 32-bit length, then the contents.
  ByteWriter& blob(std::span<const std::byte> contents) {
    number(static_cast<std::uint32_t>(contents.size()));
    bytes_.insert(bytes_.end(), contents.begin(), contents.end());
    return *this;
  }
  ByteWriter& text(std::string_view contents) { return blob(as_bytes(contents)); }
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <std::integral T>
  T number() {
    T value{};
    if (const auto raw = take(sizeof value); raw.size() == sizeof value) {
      std::memcpy(&value, raw.data(), sizeof value);
    }
    return value;
  }
  std::span<const std::byte> blob() { return take(number<std::uint32_t>()); }
  // A copy of a blob.
  Bytes bytes() {
    const auto contents = blob();
    return {contents.begin(), contents.end()};
  }
  std::string text() {
    const auto contents = blob();
    return {reinterpret_cast<const char*>(contents.data()), contents.size()};
  }
  // No read went past the end.
  bool ok() const { return is_ok_; }
  // No read went past the end, and all bytes were read.
  bool at_end() const { return is_ok_ && rest_.empty(); }

 private:
  std::span<const std::byte> take(std::size_t size) {
    if (size > rest_.size()) {
      is_ok_ = false;
      rest_ = {};
      return {};
    }
    const auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  std::span<const std::byte> rest_;
  bool is_ok_ = true;
};

}  // namespace dunlin
