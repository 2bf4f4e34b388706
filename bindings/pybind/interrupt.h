// Ctrl-C for threads that wait in the session; used by all extension modules of the package.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>

#include "bindings/session/session.h"

namespace dunlin::python {

// Returns the interrupt for a wait of this thread: it checks whether Ctrl-C was pressed. Then the
// Python exception is set and the wait ends. Empty in threads other than the main thread, which
// don't receive signals. Call it with or without the GIL.
inline binding::Session::Interrupt interrupt_of_thread() {
  // Asking Python for the thread that receives signals costs a call, so it is done once. A static
  // with a guard won't do: the guard would be held while Python code runs and may switch threads.
  static std::atomic<unsigned long> main_thread{0};  // 0: unknown
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
