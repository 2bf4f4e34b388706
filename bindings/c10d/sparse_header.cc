#include "bindings/c10d/sparse_header.h"

#include <algorithm>

namespace dunlin::torch_backend {
namespace {

// A product of numbers that are not negative, and at most 63 bits.
class Product {
 public:
  explicit Product(std::int64_t value) : value_(value) {}
  void times(std::int64_t factor) {
    is_exact_ = !__builtin_mul_overflow(value_, factor, &value_) && is_exact_;
  }
  bool is_exact() const { return is_exact_; }
  std::int64_t value() const { return value_; }

 private:
  std::int64_t value_;
  bool is_exact_ = true;
};

}  // namespace

Bytes SparseHeader::encode() const {
  ByteWriter writer;
  writer.number(type).number(sparse_dimensions).number(static_cast<std::int64_t>(sizes.size()));
  for (const std::int64_t size : sizes) writer.number(size);
  return writer.number(elements).take();
}

std::size_t SparseHeader::encoded_bytes() const {
  return sizeof type + (3 + sizes.size()) * sizeof(std::int64_t);
}

std::optional<SparseHeader> SparseHeader::decode(std::span<const std::byte> message) {
  ByteReader reader(message);
  SparseHeader header;
  header.type = reader.number<std::int8_t>();
  header.sparse_dimensions = reader.number<std::int64_t>();
  const auto dimensions = reader.number<std::int64_t>();
  for (std::int64_t i = 0; i < dimensions && reader.ok(); ++i)
    header.sizes.push_back(reader.number<std::int64_t>());
  header.elements = reader.number<std::int64_t>();
  const bool is_sound =
      dimensions >= 0 && header.elements >= 0 && header.sparse_dimensions >= 0 &&
      header.sparse_dimensions <= dimensions &&
      std::ranges::all_of(header.sizes, [](std::int64_t size) { return size >= 0; });
  if (!reader.ok() || !is_sound) return std::nullopt;
  return header;
}

std::optional<SparseHeader::Contents> SparseHeader::contents(std::size_t value_size) const {
  Product indices(sizeof(std::int64_t));
  indices.times(sparse_dimensions);
  indices.times(elements);
  Product values(static_cast<std::int64_t>(value_size));
  values.times(elements);
  for (auto i = static_cast<std::size_t>(sparse_dimensions); i < sizes.size(); ++i)
    values.times(sizes[i]);
  std::int64_t whole = 0;
  if (!indices.is_exact() || !values.is_exact() ||
      __builtin_add_overflow(indices.value(), values.value(), &whole))
    return std::nullopt;
  return Contents{static_cast<std::size_t>(indices.value()),
                  static_cast<std::size_t>(values.value())};
}

bool SparseHeader::accepts_indices(std::span<const std::byte> indices) const {
  ByteReader reader(indices);
  for (const std::int64_t size :
       std::span(sizes).first(static_cast<std::size_t>(sparse_dimensions))) {
    for (std::int64_t i = 0; i < elements; ++i) {
      const auto index = reader.number<std::int64_t>();
      if (!reader.ok() || index < 0 || index >= size) return false;
    }
  }
  return reader.at_end();
}

}  // namespace dunlin::torch_backend
