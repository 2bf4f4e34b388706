// What the readers of the kinds of arrays share (array.cc, gpu_memory.cc). Internal to this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "bindings/python/array.h"

namespace dunlin::python {

// Throw InvalidArgumentError. `what` names the array.
[[noreturn]] void refuse(const char* what, std::string_view why);
[[noreturn]] void refuse_type(const char* what, std::string_view type);
[[noreturn]] void refuse_strides(const char* what);

// The type for a kind ('i', 'u' or 'f') and the size of an element.
std::optional<collective::DataType> data_type_of(char kind, std::size_t bytes);
std::size_t count_of(std::span<const pybind11::ssize_t> shape);
// Whether an array is contiguous in C order. `strides` and `element` have the same unit.
bool is_contiguous(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
                   std::int64_t element);

}  // namespace dunlin::python
