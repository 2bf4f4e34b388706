// Staging: tensors that are not in host memory (but on a GPU, for example) go through copies in
// host memory.
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
  // Return the host tensor that a call uses instead of the given one, which is dense and
  // contiguous; if that is in host memory, it is returned itself. in(): for reading. out(): for
  // writing, with copy_back(). in_out(): both. Throw what the device throws (c10::Error).
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
  static at::Tensor copy_to_host(const at::Tensor& tensor);

  std::vector<at::Tensor> held_;  // copies that calls read from
  std::vector<Result> results_;
};

}  // namespace dunlin::torch_backend
