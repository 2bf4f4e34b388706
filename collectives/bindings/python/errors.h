// A Status as a Python exception of dunlin.errors.
#pragma once

#include <pybind11/pybind11.h>

#include "runtime/status.h"

namespace dunlin::python {

// Throws what becomes the exception of the status' code, with its whole text. With the GIL.
[[noreturn]] void raise(const Status& status);

// Nothing for ok. A Python exception that is set already (Ctrl-C) goes first.
void check(const Status& status);

template <typename T>
T take(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

}  // namespace dunlin::python
