#include "bindings/c10d/sparse.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <span>
#include <utility>

namespace dunlin::torch_backend {

namespace {

// Begins the message: what has to be the same on all ranks, and the number of elements.
Bytes header_of(const at::Tensor& tensor) {
  ByteWriter writer;
  writer.number(static_cast<std::int8_t>(tensor.scalar_type())).number(tensor.sparse_dim());
  writer.number(tensor.dim());
  for (const std::int64_t size : tensor.sizes()) writer.number(size);
  writer.number(tensor._nnz());
  return writer.take();
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
  ByteReader reader(message);
  const auto type = static_cast<at::ScalarType>(reader.number<std::int8_t>());
  const auto sparse_dimensions = reader.number<std::int64_t>();
  std::vector<std::int64_t> sizes;
  const auto dimensions = reader.number<std::int64_t>();
  for (std::int64_t i = 0; i < dimensions && reader.ok(); ++i)
    sizes.push_back(reader.number<std::int64_t>());
  const auto elements = reader.number<std::int64_t>();
  TORCH_CHECK(reader.ok() && elements >= 0, call, ": rank ", rank, " has sent no sparse tensor");
  TORCH_CHECK(type == like.scalar_type(), call, ": rank ", rank, " has a tensor of type ", type,
              ", and this rank one of ", like.scalar_type());
  TORCH_CHECK(at::IntArrayRef(sizes) == like.sizes() && sparse_dimensions == like.sparse_dim(),
              call, ": Sparse dimensions do not match: rank ", rank, " has a tensor of the sizes ",
              at::IntArrayRef(sizes), " with ", sparse_dimensions,
              " sparse dimensions, and this rank one of ", like.sizes(), " with ",
              like.sparse_dim());
  std::vector<std::int64_t> shape{elements};
  shape.insert(shape.end(), sizes.begin() + sparse_dimensions, sizes.end());
  std::size_t value_bytes = like.element_size();
  for (const std::int64_t size : shape) value_bytes *= static_cast<std::size_t>(size);
  const std::size_t index_bytes =
      sizeof(std::int64_t) * static_cast<std::size_t>(sparse_dimensions * elements);
  const std::size_t header = header_of(like).size();
  TORCH_CHECK(message.size() == header + index_bytes + value_bytes, call, ": rank ", rank,
              " has sent ", message.size(), " bytes for ", elements, " elements");
  std::span<const std::byte> rest = std::span(message).subspan(header);
  at::Tensor indices = take_tensor(rest, {sparse_dimensions, elements}, at::kLong);
  return at::sparse_coo_tensor(std::move(indices), take_tensor(rest, std::move(shape), type),
                               sizes);
}

}  // namespace

at::Tensor encode_sparse(const at::Tensor& tensor) {
  const Bytes header = header_of(tensor);
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
