// Converts a Status to a Python exception of dunlin.errors.
#pragma once

#include <pybind11/pybind11.h>

#include "runtime/status.h"

namespace dunlin::python {

// Throws the exception for the status' code, with its whole text. Needs the GIL.
[[noreturn]] void raise(const Status& status);

// Does nothing if the status is ok. A Python exception that is set already (Ctrl-C) takes
// precedence.
void check(const Status& status);

template <typename T>
T take(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

}  // namespace dunlin::python
