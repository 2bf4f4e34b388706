// SparseHeader: the beginning of a message that holds a sparse tensor (sparse.h). Behind it are the
// indices of its elements, 64 bits for each sparse dimension, and then their values. Independent of
// PyTorch's headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/bytes.h"

namespace dunlin::torch_backend {

struct SparseHeader {
  // These have to be the same on all ranks.
  std::int8_t type = 0;  // at::ScalarType
  std::int64_t sparse_dimensions = 0;
  std::vector<std::int64_t> sizes;  // of all dimensions, the sparse ones first

  std::int64_t elements = 0;

  Bytes encode() const;
  std::size_t encoded_bytes() const;
  // Nothing if the bytes do not begin with a header of a sparse tensor.
  static std::optional<SparseHeader> decode(std::span<const std::byte> message);

  // The size of the indices, and that of the values. Nothing if they exceed 63 bits.
  struct Contents {
    std::size_t index_bytes = 0;
    std::size_t value_bytes = 0;
  };
  std::optional<Contents> contents(std::size_t value_size) const;

  // Whether the bytes are the indices of all elements, and each of them lies within the size of its
  // dimension. PyTorch checks that only when asked, from version 2.0 on.
  bool accepts_indices(std::span<const std::byte> indices) const;
};

}  // namespace dunlin::torch_backend
