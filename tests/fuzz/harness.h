// The code that the harnesses share. A harness is a source that defines both functions below: one
// that gives arbitrary bytes to a decoder and checks the decoder's promises, and one that makes
// valid inputs with the tree's own encoder. libFuzzer or replay.cc calls them. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/bytes.h"

namespace dunlin::fuzz {

// Ends the program, which is how a fuzzer learns of an input that breaks a promise.
#define FUZZ_CHECK(condition) \
  ((condition) ? void() : ::dunlin::fuzz::fail(__FILE__, __LINE__, #condition))
[[noreturn]] inline void fail(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: broken promise: %s\n", file, line, condition);
  std::abort();
}

// The input, taken piece by piece from its front. Behind its end are zeros.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(std::as_bytes(std::span(data, size))) {}

  template <typename T>
  T take() {
    T value{};
    const auto bytes = take_bytes(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  std::size_t below(std::size_t bound) { return take<std::uint32_t>() % bound; }
  // At most `size` bytes.
  std::span<const std::byte> take_bytes(std::size_t size) {
    const auto taken = rest_.first(size < rest_.size() ? size : rest_.size());
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  std::span<const std::byte> rest() const { return rest_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(rest_.data()), rest_.size()};
  }

 private:
  std::span<const std::byte> rest_;
};

inline bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// A copy in memory of exactly its size, so that a sanitizer sees each read beyond it.
class Exact {
 public:
  explicit Exact(std::span<const std::byte> bytes)
      : bytes_(new std::byte[bytes.size()]), size_(bytes.size()) {
    if (size_ != 0) std::memcpy(bytes_, bytes.data(), size_);
  }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;
  ~Exact() { delete[] bytes_; }

  std::span<const std::byte> bytes() const { return {bytes_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_), size_}; }

 private:
  std::byte* bytes_;
  std::size_t size_;
};

// A valid input, for the corpus.
struct Seed {
  std::string name;
  Bytes bytes;
};
inline Seed text_seed(std::string name, std::string_view text) {
  const auto bytes = as_bytes(text);
  return {std::move(name), Bytes(bytes.begin(), bytes.end())};
}
// An input that begins with bytes by which the harness chooses what it checks.
inline Seed headed_seed(std::string name, std::initializer_list<std::uint8_t> head,
                        std::span<const std::byte> content) {
  Bytes bytes;
  for (const std::uint8_t each : head) bytes.push_back(std::byte{each});
  bytes.insert(bytes.end(), content.begin(), content.end());
  return {std::move(name), bytes};
}
std::vector<Seed> seeds();

// For what the decoder made of `bytes`, if not every byte has to come out again: a truth value may
// be any byte, and is encoded as 0 or 1. The encoder makes as many bytes, and the same of these.
template <typename T>
void check_stable(const T& decoded, std::span<const std::byte> bytes) {
  const Bytes encoded = decoded.encode();
  FUZZ_CHECK(encoded.size() == bytes.size());
  const auto again = T::decode(encoded);
  FUZZ_CHECK(again.is_ok() && equal(again->encode(), encoded));
}

}  // namespace dunlin::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
