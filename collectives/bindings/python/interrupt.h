// Ctrl-C for threads that wait in the runtime, in every extension module of the package.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>

#include "collectives/bindings/runtime.h"

namespace dunlin::python {

// What a waiting thread calls to find out whether Ctrl-C was pressed: the exception is then set,
// and the wait ends. Empty for threads that Python doesn't tell. With or without the GIL.
inline binding::Runtime::Interrupt interrupt_of_thread() {
  // Python's own way of saying which thread hears signals costs a call: once is enough. Not a
  // guarded static: its guard would be held while Python code runs and may change threads.
  static std::atomic<unsigned long> main_thread{0};  // 0: not known yet
  if (main_thread == 0) {
    const pybind11::gil_scoped_acquire acquire;
    main_thread = pybind11::module_::import("threading")
                      .attr("main_thread")()
                      .attr("ident")
                      .cast<unsigned long>();
  }
  if (PyThread_get_thread_ident() != main_thread) return {};
  return [] {
    const pybind11::gil_scoped_acquire acquire;
    return PyErr_CheckSignals() == 0 ? Status::ok()
                                     : Status(Code::kClosed, "the wait was interrupted");
  };
}

}  // namespace dunlin::python
