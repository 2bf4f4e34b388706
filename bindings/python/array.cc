#include "bindings/python/array.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "bindings/python/array_reading.h"
#include "bindings/python/dlpack.h"
#include "bindings/python/errors.h"
#include "bindings/python/gpu_array.h"
#include "bindings/python/gpu_memory.h"
#include "runtime/overlap.h"

namespace dunlin::python {

namespace py = pybind11;
using collective::DataType;

void refuse(const char* what, std::string_view why) {
  raise(Status(Code::kInvalidArgument, fmt::format("{}: {}", what, why)));
}

void refuse_type(const char* what, std::string_view type) {
  refuse(what, fmt::format("elements of type {}; the types are int8, uint8, int32, int64, float16, "
                           "bfloat16, float32 and float64",
                           type));
}

std::optional<DataType> data_type_of(char kind, std::size_t bytes) {
  for (const DataType type : {DataType::kInt8, DataType::kUint8, DataType::kInt32, DataType::kInt64,
                              DataType::kFloat16, DataType::kFloat32, DataType::kFloat64}) {
    const char own = type == DataType::kUint8 ? 'u' : collective::is_integer(type) ? 'i' : 'f';
    if (kind == own && bytes == collective::size_of(type)) return type;
  }
  return std::nullopt;
}

std::size_t count_of(std::span<const py::ssize_t> shape) {
  std::size_t count = 1;
  for (const py::ssize_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

void refuse_strides(const char* what) {
  refuse(what,
         "the array is not contiguous in C order; ascontiguousarray() of NumPy and CuPy, or "
         "contiguous() of PyTorch, makes one that is");
}

bool is_contiguous(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
                   std::int64_t element) {
  if (std::ranges::find(shape, 0) != shape.end()) return true;
  std::int64_t expected = element;
  for (std::size_t axis = shape.size(); axis-- > 0; expected *= shape[axis]) {
    if (shape[axis] != 1 && strides[axis] != expected) return false;
  }
  return true;
}

// Reads Python's attributes: pybind11 before 2.12 reads the structure itself, whose fields lie
// elsewhere in NumPy 2.
DataType type_of(const py::dtype& dtype, const char* what) {
  if (const auto type = data_type_of(dtype.kind(), dtype.attr("itemsize").cast<std::size_t>());
      type && dtype.attr("isnative").cast<bool>()) {
    return *type;
  }
  const auto name = py::str(static_cast<py::handle>(dtype)).cast<std::string>();
  if (name == "bfloat16") return DataType::kBfloat16;
  refuse_type(what, name);
}

namespace {

std::string place_of(std::optional<int> gpu) {
  return gpu ? fmt::format("GPU {}", *gpu) : "the host";
}

Array view_of_numpy(const py::array& array, const char* what) {
  if ((array.flags() & py::array::c_style) == 0) refuse_strides(what);
  Array view;
  view.shape.assign(array.shape(), array.shape() + array.ndim());
  view.count = static_cast<std::size_t>(array.size());
  view.type = type_of(array.dtype(), what);
  view.is_writable = array.writeable();
  // Read as const, as the array may be read-only.
  view.data = static_cast<std::byte*>(const_cast<void*>(array.data()));
  view.object = array;
  view.keeper = array;
  return view;
}

bool has_c_order(const dlpack::Tensor& tensor) {
  const auto axes = static_cast<std::size_t>(tensor.dimensions);
  return tensor.strides == nullptr ||
         is_contiguous({tensor.shape, axes}, {tensor.strides, axes}, 1);
}

DataType type_of(const dlpack::Type& type, const char* what) {
  if (type.lanes == 1 && type.code == dlpack::kBfloat && type.bits == 16)
    return DataType::kBfloat16;
  const char kinds[] = {'i', 'u', 'f'};
  const auto found = type.lanes == 1 && type.code < sizeof kinds
                         ? data_type_of(kinds[type.code], type.bits / 8U)
                         : std::nullopt;
  if (!found) {
    refuse_type(what, fmt::format("{} of {} bits and {} lanes (DLPack)", int{type.code},
                                  int{type.bits}, int{type.lanes}));
  }
  return *found;
}

// Throws unless the memory of a device can be used.
void check_device(int type, Usable usable, const char* what) {
  if (type == dlpack::kCpu || type == dlpack::kCudaHost) return;
  if (type == dlpack::kCudaManaged) {
    refuse(what,
           "the array is in managed memory, which moves between host and device; copy it to "
           "memory of the GPU or of the host");
  }
  if (type != dlpack::kCuda) {
    refuse(what, fmt::format("the array is in device memory (DLPack device type {}); copy it to "
                             "host memory",
                             type));
  }
  if (usable == Usable::kHost) refuse_gpu(what);
}

Array view_of_dlpack(py::handle object, const char* what, Usable usable) {
  const auto device = object.attr("__dlpack_device__")().cast<std::pair<int, int>>();
  check_device(device.first, usable, what);
  const bool is_gpu = device.first == dlpack::kCuda;
  // The package makes this stream wait until the array may be used.
  const NativeGpuStream stream =
      is_gpu ? GpuAccess::instance().stream_for(device.second, what) : nullptr;
  const py::object capsule =
      is_gpu
          ? object.attr("__dlpack__")(py::arg("stream") = reinterpret_cast<std::uintptr_t>(stream))
          : object.attr("__dlpack__")();
  auto* const managed =
      static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), dlpack::kCapsule));
  if (managed == nullptr) throw py::error_already_set();
  // From here on, this code has to delete it.
  PyCapsule_SetName(capsule.ptr(), dlpack::kUsedCapsule);
  Array view;
  view.keeper = py::capsule(managed, [](void* pointer) {
    auto* const tensor = static_cast<dlpack::ManagedTensor*>(pointer);
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  });
  const dlpack::Tensor& tensor = managed->tensor;
  view.type = type_of(tensor.type, what);
  if (!has_c_order(tensor)) refuse_strides(what);
  view.shape.assign(tensor.shape, tensor.shape + tensor.dimensions);
  view.count = count_of(view.shape);
  view.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  view.is_writable = true;  // this version of DLPack can't tell that memory is read-only
  if (is_gpu) {
    find_gpu(view, device.second, what);
    if (view.count > 0) set_ready_after(view, stream, what);
  }
  return view;
}

struct ReleaseBuffer {
  void operator()(Py_buffer* buffer) const {
    PyBuffer_Release(buffer);
    delete buffer;
  }
};

DataType type_of(const Py_buffer& buffer, const char* what) {
  std::string_view format = buffer.format == nullptr ? "B" : buffer.format;
  if (!format.empty() && (format[0] == '@' || format[0] == '=' || format[0] == '<'))
    format.remove_prefix(1);
  const auto kind_of = [](char code) {
    return std::string_view("bhilq").find(code) != std::string_view::npos   ? 'i'
           : std::string_view("BHILQ").find(code) != std::string_view::npos ? 'u'
           : std::string_view("efd").find(code) != std::string_view::npos   ? 'f'
                                                                            : '?';
  };
  const auto found = format.size() == 1 ? data_type_of(kind_of(format[0]),
                                                       static_cast<std::size_t>(buffer.itemsize))
                                        : std::nullopt;
  if (!found) refuse_type(what, fmt::format("'{}' (buffer protocol)", format));
  return *found;
}

Array view_of_buffer(py::handle object, const char* what) {
  std::unique_ptr<Py_buffer, ReleaseBuffer> buffer;
  {
    auto raw = std::make_unique<Py_buffer>();
    int failed =
        PyObject_GetBuffer(object.ptr(), raw.get(), PyBUF_ND | PyBUF_FORMAT | PyBUF_WRITABLE);
    if (failed != 0) {
      PyErr_Clear();
      failed = PyObject_GetBuffer(object.ptr(), raw.get(), PyBUF_ND | PyBUF_FORMAT);
    }
    if (failed != 0) {
      PyErr_Clear();
      refuse_strides(what);
    }
    buffer.reset(raw.release());
  }
  Array view;
  view.type = type_of(*buffer, what);
  view.shape.assign(buffer->shape, buffer->shape + buffer->ndim);
  view.count = count_of(view.shape);
  view.data = static_cast<std::byte*>(buffer->buf);
  view.is_writable = buffer->readonly == 0;
  view.keeper = py::capsule(
      buffer.release(), [](void* pointer) { ReleaseBuffer()(static_cast<Py_buffer*>(pointer)); });
  return view;
}

}  // namespace

Array view_of(py::handle object, const char* what, Usable usable) {
  Array view;
  if (py::isinstance<py::array>(object)) {
    view = view_of_numpy(py::reinterpret_borrow<py::array>(object), what);
  } else if (py::isinstance<GpuArray>(object)) {
    if (usable == Usable::kHost) refuse_gpu(what);
    view = object.cast<const GpuArray&>().view();
    view.keeper = py::reinterpret_borrow<py::object>(object);
  } else if (py::hasattr(object, "__dlpack__")) {
    view = view_of_dlpack(object, what, usable);
  } else if (has_gpu_interface(object)) {
    if (usable == Usable::kHost) refuse_gpu(what);
    view = view_of_gpu_interface(object, what);
  } else if (PyObject_CheckBuffer(object.ptr()) != 0) {
    view = view_of_buffer(object, what);
  } else {
    throw py::type_error(
        fmt::format("{}: a {} is no array: it is neither a NumPy array nor has it __dlpack__, "
                    "__cuda_array_interface__ or the buffer protocol",
                    what, Py_TYPE(object.ptr())->tp_name));
  }
  view.object = py::reinterpret_borrow<py::object>(object);
  return view;
}

Array writable_view_of(py::handle object, const char* what, Usable usable) {
  Array view = view_of(object, what, usable);
  if (!view.is_writable) refuse(what, "the array is read-only");
  return view;
}

py::array array_over(const py::dtype& type, std::vector<py::ssize_t> shape, const void* data,
                     py::handle keeper) {
  // The size is given, as pybind11 would read it from the structure of the type: see type_of().
  std::vector<py::ssize_t> strides(shape.size());
  auto stride = type.attr("itemsize").cast<py::ssize_t>();
  for (std::size_t axis = shape.size(); axis-- > 0; stride *= std::max<py::ssize_t>(shape[axis], 1))
    strides[axis] = stride;
  return {type, std::move(shape), std::move(strides), data, keeper};
}

DataType real_type_of(py::handle dtype, Arguments& given) {
  try {
    const DataType type =
        type_of(py::dtype::from_args(py::reinterpret_borrow<py::object>(dtype)), "dtype");
    if (type == DataType::kFloat32 || type == DataType::kFloat64) return type;
  } catch (py::error_already_set&) {  // NOLINT(bugprone-empty-catch): refused below
  }
  given.fail({Code::kInvalidArgument, fmt::format("dtype: {} is neither float32 nor float64",
                                                  py::repr(dtype).cast<std::string>())});
  return DataType::kFloat32;
}

Array make_array(DataType type, std::vector<py::ssize_t> shape) {
  py::object dtype;
  if (type == DataType::kBfloat16) {
    try {
      dtype = py::module_::import("numpy").attr("dtype")(
          py::module_::import("ml_dtypes").attr("bfloat16"));
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_ImportError)) throw;
      refuse("out",
             "NumPy has no bfloat16 without the package ml_dtypes; give an array for the result "
             "by out=");
    }
  } else {
    dtype = py::dtype(to_string(type));
  }
  return view_of_numpy(
      array_over(py::reinterpret_borrow<py::dtype>(dtype), std::move(shape), nullptr, {}), "out");
}

Array output_for(const Array& input, std::vector<py::ssize_t> shape, py::handle out) {
  if (out.is_none()) {
    return input.gpu ? make_gpu_array(input.type, std::move(shape), *input.gpu, "out")
                     : make_array(input.type, std::move(shape));
  }
  Array output = writable_view_of(out, "out", Usable::kHostAndGpu);
  const std::size_t count = count_of(shape);
  if (output.gpu != input.gpu) {
    refuse("out", fmt::format("the array is in the memory of {}, but the input is in that of {}",
                              place_of(output.gpu), place_of(input.gpu)));
  }
  if (output.type != input.type) {
    refuse("out", fmt::format("elements of type {}, but the input has {}", to_string(output.type),
                              to_string(input.type)));
  }
  if (output.count != count)
    refuse("out", fmt::format("{} elements, but the result has {}", output.count, count));
  return output;
}

void check_gpu(const Array& array, std::optional<int> gpu, const char* what) {
  if (array.gpu == gpu) return;
  refuse(what, fmt::format("the array is in the memory of {}, but this object was made for that of "
                           "{} (its argument gpu)",
                           place_of(array.gpu), place_of(gpu)));
}

bool overlap(const Array& a, const Array& b) {
  return dunlin::overlap(a.data, a.bytes(), b.data, b.bytes());
}

void check_overlap(const Array& outer, const Array& inner, std::size_t offset) {
  if (overlap(outer, inner) && inner.data != outer.data + offset * collective::size_of(outer.type))
    raise(Status(Code::kInvalidArgument,
                 "out overlaps the input, and is not at the place for use in place"));
}

}  // namespace dunlin::python
