// Communicator calls on tensors, as the group (group.h) makes them, and checks of their arguments.
#pragma once

#include <c10/util/Exception.h>

#include <cstddef>
#include <vector>

#include "bindings/c10d/tensors.h"
#include "collectives/communicator/communicator.h"
#include "runtime/overlap.h"

namespace dunlin::torch_backend {

// A call that only moves data: as bytes, of any type.
inline collective::Call move_call(collective::Collective collective, const at::Tensor& input,
                                  const at::Tensor& output, std::size_t bytes, int root = 0) {
  return {collective, input.data_ptr(), output.data_ptr(), bytes, {collective::DataType::kUint8},
          root};
}

inline collective::Call reduce_call(collective::Collective collective, const at::Tensor& input,
                                    const at::Tensor& output, std::size_t elements,
                                    collective::Reduction reduction, int root = 0) {
  return {collective, input.data_ptr(), output.data_ptr(), elements, reduction, root};
}

inline bool overlap(const at::Tensor& a, const at::Tensor& b) {
  return dunlin::overlap(a.data_ptr(), bytes(a), b.data_ptr(), bytes(b));
}

// The tensors, with a copy of each that shares memory with `output`, but for number `own`.
inline std::vector<at::Tensor> apart_from(const at::Tensor& output, std::vector<at::Tensor> tensors,
                                          int own) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i != static_cast<std::size_t>(own) && overlap(output, tensors[i]))
      tensors[i] = tensors[i].clone();
  }
  return tensors;
}

inline void check_lists(std::size_t lists, const char* call) {
  TORCH_CHECK(lists == 1, "dunlin: ", call, ": one list of tensors per process, not ", lists);
}

}  // namespace dunlin::torch_backend
