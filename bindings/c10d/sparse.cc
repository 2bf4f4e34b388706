#include "bindings/c10d/sparse.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <span>
#include <utility>

#include "bindings/c10d/sparse_header.h"

namespace dunlin::torch_backend {

namespace {

SparseHeader header_of(const at::Tensor& tensor) {
  return {static_cast<std::int8_t>(tensor.scalar_type()), tensor.sparse_dim(), tensor.sizes().vec(),
          tensor._nnz()};
}

std::byte* append(std::byte* to, const void* from, std::size_t size) {
  if (size > 0) std::memcpy(to, from, size);
  return to + size;
}

// Fills a new tensor from the beginning of `bytes`, and takes that from them. Their number was
// checked.
at::Tensor take_tensor(std::span<const std::byte>& bytes, std::vector<std::int64_t> sizes,
                       at::ScalarType type) {
  at::Tensor tensor = at::empty(sizes, at::TensorOptions(type));
  (void)append(static_cast<std::byte*>(tensor.data_ptr()), bytes.data(), tensor.nbytes());
  bytes = bytes.subspan(tensor.nbytes());
  return tensor;
}

at::Tensor decode_sparse(const Bytes& message, const at::Tensor& like, int rank, const char* call) {
  const auto header = SparseHeader::decode(message);
  TORCH_CHECK(header, call, ": rank ", rank, " has sent no sparse tensor");
  const auto type = static_cast<at::ScalarType>(header->type);
  TORCH_CHECK(type == like.scalar_type(), call, ": rank ", rank, " has a tensor of type ", type,
              ", and this rank one of ", like.scalar_type());
  const at::IntArrayRef sizes(header->sizes);
  const std::int64_t sparse_dimensions = header->sparse_dimensions;
  TORCH_CHECK(sizes == like.sizes() && sparse_dimensions == like.sparse_dim(), call,
              ": Sparse dimensions do not match: rank ", rank, " has a tensor of the sizes ", sizes,
              " with ", sparse_dimensions, " sparse dimensions, and this rank one of ",
              like.sizes(), " with ", like.sparse_dim());
  const auto contents = header->contents(like.element_size());
  const std::size_t begin = header->encoded_bytes();
  TORCH_CHECK(contents && message.size() - begin == contents->index_bytes + contents->value_bytes,
              call, ": rank ", rank, " has sent ", message.size(), " bytes for ", header->elements,
              " elements");
  std::vector<std::int64_t> shape{header->elements};
  shape.insert(shape.end(), sizes.begin() + sparse_dimensions, sizes.end());
  std::span<const std::byte> rest = std::span(message).subspan(begin);
  TORCH_CHECK(header->accepts_indices(rest.first(contents->index_bytes)), call, ": rank ", rank,
              " has sent indices that do not lie within the sizes ", sizes);
  at::Tensor indices = take_tensor(rest, {sparse_dimensions, header->elements}, at::kLong);
  return at::sparse_coo_tensor(std::move(indices), take_tensor(rest, std::move(shape), type),
                               sizes);
}

}  // namespace

at::Tensor encode_sparse(const at::Tensor& tensor) {
  const Bytes header = header_of(tensor).encode();
  const at::Tensor indices = tensor.indices().contiguous();
  const at::Tensor values = tensor.values().contiguous();
  at::Tensor encoded =
      at::empty({static_cast<std::int64_t>(header.size() + indices.nbytes() + values.nbytes())},
                at::TensorOptions(at::kByte));
  std::byte* to = append(static_cast<std::byte*>(encoded.data_ptr()), header.data(), header.size());
  to = append(to, indices.data_ptr(), indices.nbytes());
  (void)append(to, values.data_ptr(), values.nbytes());
  return encoded;
}

at::Tensor sum_sparse(const std::vector<std::shared_ptr<Bytes>>& encoded, int own_rank,
                      const at::Tensor& own, const char* call) {
  at::Tensor sum;
  for (int rank = 0; std::cmp_less(rank, encoded.size()); ++rank) {
    const at::Tensor part =
        rank == own_rank ? own
                         : decode_sparse(*encoded[static_cast<std::size_t>(rank)], own, rank, call);
    sum = sum.defined() ? sum + part : part;
  }
  return sum.coalesce();
}

}  // namespace dunlin::torch_backend
