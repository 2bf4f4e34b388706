// Sparse tensors (torch.sparse_coo) as messages, for the all-reduce of them. Each rank sends its
// elements to all others and adds up what it gets, in the order of the ranks, so that the result is
// bitwise the same on all ranks. All functions throw c10::Error. Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/bytes.h"

namespace dunlin::torch_backend {

// Returns a tensor of bytes with the elements of a coalesced sparse tensor in host memory.
at::Tensor encode_sparse(const at::Tensor& tensor);
// Returns the coalesced sum of the ranks' tensors, by rank: that of `own_rank` is `own`, the others
// are what encode_sparse() has made there. They need the type and the dimensions of `own`.
at::Tensor sum_sparse(const std::vector<std::shared_ptr<Bytes>>& encoded, int own_rank,
                      const at::Tensor& own, const char* call);

}  // namespace dunlin::torch_backend
