// Communicator calls on tensors, as the group (group.h) makes them, and checks of their arguments.
#pragma once

#include <c10/util/Exception.h>

#include <cstddef>
#include <vector>

#include "bindings/c10d/tensors.h"
#include "collectives/communicator/communicator.h"

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

inline void check_lists(std::size_t lists, const char* call) {
  TORCH_CHECK(lists == 1, "dunlin: ", call, ": one list of tensors per process, not ", lists);
}

}  // namespace dunlin::torch_backend
