// Tensors as the collectives take them. All throw c10::Error (RuntimeError) for what they can't
// take.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <vector>

#include "collectives/bindings/c10d/torch.h"
#include "collectives/kernels/reduce.h"

namespace dunlin::torch_backend {

// Dense, contiguous, with elements, on any device; `call` names the caller. Other functions here
// take tensors in host memory.
void check(const at::Tensor& tensor, const char* call);
// The only one of a list; c10d has lists where it has one tensor per device.
at::Tensor& only(std::vector<at::Tensor>& tensors, const char* call);
// The same number of elements as `like`, and their type.
void check_like(const at::Tensor& tensor, const at::Tensor& like, const char* call);
void check_types(const std::vector<at::Tensor>& tensors, const at::Tensor& like, const char* call);

// Bitwise reductions, of integers and bools, are not the library's: inputs are gathered, and
// combined here.
bool is_bitwise(const c10d::ReduceOp& op);
// `target` = the `parts` tensors of its size that lie in `rows`, one behind the other, combined.
void fold_bits(const at::Tensor& rows, std::size_t parts, const c10d::ReduceOp& op,
               const at::Tensor& target);
void check_bits(const at::Tensor& tensor, const char* call);
// The tensor itself, or, for PREMUL_SUM, times the operation's factor, in a tensor of its own.
at::Tensor scaled(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* call);

// How elements are combined: of scaled() tensors, and not bitwise. Of bools, sum and max are "any",
// product and min are "all".
collective::Reduction reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op,
                                   const char* call);

inline std::size_t count(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel());
}
inline std::size_t bytes(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.nbytes());
}

// The tensors' memory, where they lie one behind the other; else a new tensor of that size.
struct Flat {
  at::Tensor tensor;
  bool is_copy = false;
};
Flat flat_of(const std::vector<at::Tensor>& tensors);
void pack(const std::vector<at::Tensor>& tensors, const at::Tensor& flat);
void unpack(const at::Tensor& flat, const std::vector<at::Tensor>& tensors);

}  // namespace dunlin::torch_backend
