// Staging: tensors that calls can't use as they are go through copies, which are contiguous and on
// the device of the call: in host memory, or on a GPU for calls on its memory. These are tensors on
// other devices and tensors that are not contiguous (weights in the channels-last format,
// transposed ones). The copies have their elements in the order of the indices, so ranks may have
// different strides.
//
// A call belongs to the current stream, like the device's own operations. Copies to host memory
// wait for it: everything that was enqueued there before has ended when in() or out() returns.
// Copies on a GPU are enqueued there. The copies back have arrived when copy_back() returns, for
// all streams; it waits for the device.
//
// A copy of a Staging has the same tensors. Threads: any, one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace dunlin::torch_backend {

class Staging {
 public:
  explicit Staging(at::Device device = at::kCPU) : device_(device) {}

  // Return the tensor that a call uses instead of the given one, which is dense: itself where it is
  // contiguous and on the call's device. in(): for reading. out(): for writing, with copy_back().
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
    at::Tensor copy;
  };
  bool is_usable(const at::Tensor& tensor) const;
  at::Tensor copy_of(const at::Tensor& tensor) const;

  at::Device device_;
  std::vector<at::Tensor> held_;  // copies that calls read from
  std::vector<Result> results_;
};

}  // namespace dunlin::torch_backend
