// Conversions and checks of tensors for the collectives. All functions throw c10::Error
// (RuntimeError) for tensors that can't be used.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <vector>

#include "bindings/c10d/torch.h"
#include "collectives/kernels/reduce.h"

namespace dunlin::torch_backend {

// Checks that the tensor is dense and not on the meta device; `call` names the caller. Other
// functions that use elements take the tensors of Staging (staging.h).
void check(const at::Tensor& tensor, const char* call);
// Returns the only tensor of a list: c10d's lists have one tensor per device.
at::Tensor& only(std::vector<at::Tensor>& tensors, const char* call);
// Checks that the tensor has the same type and number of elements as `like`.
void check_like(const at::Tensor& tensor, const at::Tensor& like, const char* call);
void check_types(const std::vector<at::Tensor>& tensors, const at::Tensor& like, const char* call);

// Whether it is a bitwise reduction. The library has none: inputs are gathered and combined here.
bool is_bitwise(const c10d::ReduceOp& op);
// Combines the `parts` tensors of the size of `target` that `rows` consists of, and writes
// `target`.
void fold_bits(const at::Tensor& rows, std::size_t parts, const c10d::ReduceOp& op,
               const at::Tensor& target);
void check_bits(const at::Tensor& tensor, const char* call);
// Returns the tensor itself, or, for PREMUL_SUM, a new tensor: the product with the reduction's
// factor.
at::Tensor scaled(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* call);

// The reduction of elements, unless it is bitwise; of scaled() tensors for PREMUL_SUM. For bools,
// sum and max are "any", product and min are "all".
collective::Reduction reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op,
                                   const char* call);

inline std::size_t count(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel());
}
inline std::size_t bytes(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.nbytes());
}

// Whether all tensors have the same number of elements.
bool are_even(const std::vector<at::Tensor>& tensors);

// One tensor over the tensors' memory if they lie in it without gaps; otherwise a new one of that
// size.
struct Flat {
  at::Tensor tensor;
  bool is_copy = false;
};
Flat flat_of(const std::vector<at::Tensor>& tensors);
void pack(const std::vector<at::Tensor>& tensors, const at::Tensor& flat);
void unpack(const at::Tensor& flat, const std::vector<at::Tensor>& tensors);

}  // namespace dunlin::torch_backend
