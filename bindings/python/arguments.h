// Arguments: reads the arguments of a collective constructor, of which every rank has to make the
// call even if its arguments are wrong.
#pragma once

#include <fmt/format.h>
#include <pybind11/pybind11.h>

#include <string>
#include <utility>

#include "runtime/status.h"

namespace dunlin::python {

// The first error is kept, so that all ranks can be told. Needs the GIL.
struct Arguments {
  // A value-initialized one after an error.
  template <typename Value>
  Value read(const char* name, pybind11::handle given) {
    try {
      return given.cast<Value>();
    } catch (const pybind11::cast_error&) {
      refuse(name, given);
      return {};
    }
  }
  // The value of a result; a value-initialized one after an error.
  template <typename Value>
  Value read(Result<Value> result) {
    if (result) return std::move(result).value();
    fail(std::move(result).status());
    return {};
  }
  void refuse(const char* name, pybind11::handle given) {
    fail({Code::kInvalidArgument, fmt::format("{}: {} is not a possible value", name,
                                              pybind11::repr(given).cast<std::string>())});
  }
  void fail(Status why) {
    if (mistake.is_ok()) mistake = std::move(why);
  }
  Status mistake;
};

}  // namespace dunlin::python
