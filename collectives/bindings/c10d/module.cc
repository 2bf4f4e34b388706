// The extension module dunlin._c10d. dunlin/c10d.py, which imports it, is what programs use.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "collectives/bindings/c10d/group.h"
#include "collectives/bindings/python/interrupt.h"

namespace dunlin::torch_backend {

namespace py = pybind11;

binding::Runtime::Interrupt Interruption::look() {
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

PYBIND11_MODULE(_c10d, module) {
  using WithoutLock = py::call_guard<py::gil_scoped_release>;
  module.doc() = "Dunlin as a backend of torch.distributed: see dunlin.c10d.";
  py::module_::import("torch.distributed");  // whose classes are the bases
  py::class_<Group, TorchBackend, Handle<Group>>(module, "ProcessGroupDunlin")
      .def("_set_timeout", &Group::setTimeout, py::arg("timeout"))
      .def("_abort", &Group::abort, WithoutLock());
  module.def("create", &Group::create, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("timeout"), WithoutLock());
  module.def(
      "leave",
      [](bool together, double patience_seconds) {
        const auto patience =
            std::chrono::duration_cast<Duration>(std::chrono::duration<double>(patience_seconds));
        const auto ending = together ? binding::Ending::kTogether : binding::Ending::kAlone;
        return std::string(Engine::leave(ending, patience).message());
      },
      py::arg("together"), py::arg("patience_seconds"), WithoutLock());
  module.def("forget", &Engine::forget);
}

}  // namespace dunlin::torch_backend
