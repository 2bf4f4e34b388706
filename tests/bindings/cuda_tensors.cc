// The extension module cuda_tensors: tensors over memory of the stand-in for CUDA's driver, for a
// PyTorch without CUDA. They have a type, a shape and an address, and no operations.
#include <ATen/ATen.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <vector>

namespace {

namespace py = pybind11;

// A tensor of the given type over `address`. `keeper` lives as long as the tensor.
at::Tensor tensor(std::uintptr_t address, const std::vector<int64_t>& shape, const at::Tensor& like,
                  int device, py::object keeper) {
  auto* const kept = new py::object(std::move(keeper));
  const auto drop = [kept](void*) {
    const py::gil_scoped_acquire acquire;
    delete kept;
  };
  const at::Device gpu(at::kCUDA, static_cast<at::DeviceIndex>(device));
  return at::for_blob(reinterpret_cast<void*>(address), shape)
      .deleter(drop)
      .options(at::TensorOptions(like.scalar_type()).device(gpu))
      .target_device(gpu)
      .make_tensor();
}

}  // namespace

PYBIND11_MODULE(cuda_tensors, module) {
  module.def("tensor", &tensor);
}
