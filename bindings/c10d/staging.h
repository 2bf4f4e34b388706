// Staging: tensors that calls can't use as they are go through copies, which are in host memory and
// contiguous. These are tensors on other devices (a GPU, for example) and tensors that are not
// contiguous (weights in the channels-last format, transposed ones). The copies have their elements
// in the order of the indices, so ranks may have different strides.
//
// A call belongs to the current stream, like the device's own operations: everything that was
// enqueued there before has ended when in() or out() returns. The copies back have arrived when
// copy_back() returns, for all streams. All three wait for the device.
//
// A copy of a Staging has the same tensors. Threads: any, one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace dunlin::torch_backend {

class Staging {
 public:
  // Return the tensor that a call uses instead of the given one, which is dense: itself where it is
  // contiguous and in host memory. in(): for reading. out(): for writing, with copy_back().
  // in_out(): both. Throw what the device throws (c10::Error). out() and in_out() throw if elements
  // of the tensor share memory, as those of an expanded one do.
  at::Tensor in(const at::Tensor& tensor);
  at::Tensor out(const at::Tensor& tensor);
  at::Tensor in_out(const at::Tensor& tensor);
  std::vector<at::Tensor> in(const std::vector<at::Tensor>& tensors);
  std::vector<at::Tensor> out(const std::vector<at::Tensor>& tensors);

  bool has_results() const { return !results_.empty(); }
  // Call it after the call has succeeded.
  void copy_back() const;

 private:
  struct Result {
    at::Tensor tensor;
    at::Tensor host;
  };
  static bool is_usable(const at::Tensor& tensor);
  static at::Tensor copy_to_host(const at::Tensor& tensor);

  std::vector<at::Tensor> held_;  // copies that calls read from
  std::vector<Result> results_;
};

}  // namespace dunlin::torch_backend
