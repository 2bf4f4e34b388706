// Staging: tensors that are not in host memory (a GPU's, say) go through copies that are.
//
// As the device's own operations, a call counts as made in the current stream: what was enqueued
// there before is done when in() or out() returns, and the copies back have arrived when
// copy_back() returns, whatever stream looks at them next. All three wait for the device.
//
// Value: a copy of it has the same tensors. Any thread, one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace dunlin::torch_backend {

class Staging {
 public:
  // What a call uses instead of the tensor, which is dense and contiguous: the tensor itself where
  // it is in host memory. in(): what is read; out(): what is written, for copy_back(); in_out():
  // both. Throw what the device throws (c10::Error).
  at::Tensor in(const at::Tensor& tensor);
  at::Tensor out(const at::Tensor& tensor);
  at::Tensor in_out(const at::Tensor& tensor);
  std::vector<at::Tensor> in(const std::vector<at::Tensor>& tensors);
  std::vector<at::Tensor> out(const std::vector<at::Tensor>& tensors);

  bool has_results() const { return !results_.empty(); }
  // Once the call has gone well.
  void copy_back() const;

 private:
  struct Result {
    at::Tensor tensor;
    at::Tensor host;
  };
  static at::Tensor copy_to_host(const at::Tensor& tensor);

  std::vector<at::Tensor> held_;  // that calls read from
  std::vector<Result> results_;
};

}  // namespace dunlin::torch_backend
