// The extension module dunlin._c10d. Programs use dunlin/c10d.py, which imports it.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/c10d/group.h"
#include "bindings/pybind/environment.h"
#include "bindings/pybind/interrupt.h"

namespace dunlin::torch_backend {

namespace py = pybind11;

binding::Session::Interrupt Interruption::interrupt() {
  auto interrupt = python::interrupt_of_thread();
  if (!interrupt) return {};
  return [this, interrupt = std::move(interrupt)] {
    Status status = interrupt();
    if (!status.is_ok()) {
      const py::gil_scoped_acquire acquire;
      caught_ = std::make_exception_ptr(py::error_already_set());
    }
    return status;
  };
}

std::optional<NativeGpuStream> current_stream(int device) {
  const py::gil_scoped_acquire acquire;
  const py::module_ torch = py::module_::import("torch._C");
  if (!py::hasattr(torch, "_cuda_getCurrentRawStream")) return std::nullopt;
  const py::object stream = torch.attr("_cuda_getCurrentRawStream")(device);
  return reinterpret_cast<NativeGpuStream>(stream.cast<std::uintptr_t>());
}

void wait_without_python(const std::function<void()>& wait) {
  if (Py_IsInitialized() == 0) return;
  if (PyGILState_Check() == 0) return wait();
  const py::gil_scoped_release release;
  wait();
}

PYBIND11_MODULE(_c10d, module) {
  using WithoutLock = py::call_guard<py::gil_scoped_release>;
  module.doc() = "Dunlin as a backend of torch.distributed: see dunlin.c10d.";
  py::module_::import("torch.distributed");  // registers the base classes
  py::class_<Group, TorchBackend, Handle<Group>>(module, "ProcessGroupDunlin")
      .def("_set_timeout", &Group::setTimeout, py::arg("timeout"))
      .def("_abort", &Group::abort, WithoutLock());
  module.def("create", &Group::create, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("timeout"), py::arg("store_ends_with_it") = false, WithoutLock());
  module.def(
      "leave",
      [](bool together, double timeout_seconds) {
        const auto timeout =
            std::chrono::duration_cast<Duration>(std::chrono::duration<double>(timeout_seconds));
        const auto ending = together ? binding::Ending::kTogether : binding::Ending::kAlone;
        return std::string(Engine::leave(ending, timeout).message());
      },
      py::arg("together"), py::arg("timeout_seconds"), WithoutLock());
  module.def("forget", &Engine::forget);
  module.def("hide_job_secret", &python::hide_job_secret);
}

}  // namespace dunlin::torch_backend
