#include "bindings/python/errors.h"

#include <string>

namespace dunlin::python {

namespace py = pybind11;

void raise(const Status& status) {
  const py::object peer = status.peer() ? py::object(py::int_(status.peer()->value())) : py::none();
  const py::object error =
      py::module_::import("dunlin.errors")
          .attr("of")(to_string(status.code()), std::string(status.message()), peer);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

void check(const Status& status) {
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (!status.is_ok()) raise(status);
}

}  // namespace dunlin::python
