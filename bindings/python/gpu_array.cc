#include "bindings/python/gpu_array.h"

#include <fmt/format.h>

#include <utility>

#include "bindings/python/array_reading.h"
#include "bindings/python/dlpack.h"
#include "bindings/python/errors.h"
#include "bindings/python/gpu_memory.h"

namespace dunlin::python {

namespace py = pybind11;
using collective::DataType;

namespace {

// A tensor that another package owns until it calls the deleter, which any thread may do.
struct Exported {
  dlpack::ManagedTensor managed{};
  std::vector<std::int64_t> shape;
  std::shared_ptr<MemoryRegion> owner;
};

dlpack::Type dlpack_type(DataType type) {
  const auto bits = static_cast<std::uint8_t>(8 * collective::size_of(type));
  if (type == DataType::kBfloat16) return {dlpack::kBfloat, bits, 1};
  if (type == DataType::kUint8) return {dlpack::kUint, bits, 1};
  return {static_cast<std::uint8_t>(collective::is_integer(type) ? dlpack::kInt : dlpack::kFloat),
          bits, 1};
}

void drop_unused(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, dlpack::kCapsule) == 0) return;  // the consumer has taken it
  auto* const managed =
      static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, dlpack::kCapsule));
  managed->deleter(managed);
}

}  // namespace

GpuArray::GpuArray(DataType type, std::vector<py::ssize_t> shape, int device,
                   std::shared_ptr<MemoryRegion> owner, std::byte* data)
    : owner_(std::move(owner)) {
  view_.type = type;
  view_.shape = std::move(shape);
  view_.count = count_of(view_.shape);
  view_.data = data;
  view_.gpu = device;
  view_.is_writable = true;
}

py::tuple GpuArray::shape() const {
  py::tuple shape(view_.shape.size());
  for (std::size_t axis = 0; axis < view_.shape.size(); ++axis) shape[axis] = view_.shape[axis];
  return shape;
}

py::dict GpuArray::interface() const {
  if (view_.type == DataType::kBfloat16)
    throw py::attribute_error("__cuda_array_interface__ has no bfloat16; use DLPack");
  const char kind = view_.type == DataType::kUint8       ? 'u'
                    : collective::is_integer(view_.type) ? 'i'
                                                         : 'f';
  const std::size_t bytes = collective::size_of(view_.type);
  py::dict interface;
  interface["shape"] = shape();
  interface["typestr"] = fmt::format("{}{}{}", bytes == 1 ? '|' : '<', kind, bytes);
  interface["data"] = py::make_tuple(reinterpret_cast<std::uintptr_t>(view_.data), false);
  interface["strides"] = py::none();
  interface["stream"] = py::none();
  interface["version"] = 3;
  return interface;
}

py::capsule GpuArray::dlpack(const py::object& target, const py::object& copy) const {
  if (!target.is_none() &&
      target.cast<std::pair<int, int>>() != std::pair(int{dlpack::kCuda}, device())) {
    throw py::buffer_error(fmt::format(
        "the array is in the memory of GPU {}, and can't be copied to DLPack device {}; "
        "export it, and copy that",
        device(), py::repr(target).cast<std::string>()));
  }
  if (!copy.is_none() && copy.cast<bool>())
    throw py::buffer_error("the array can't be copied; export it, and copy that");
  auto exported = std::make_unique<Exported>();
  exported->shape.assign(view_.shape.begin(), view_.shape.end());
  exported->owner = owner_;
  dlpack::Tensor& tensor = exported->managed.tensor;
  tensor.data = view_.data;
  tensor.device = {dlpack::kCuda, device()};
  tensor.dimensions = static_cast<std::int32_t>(exported->shape.size());
  tensor.type = dlpack_type(view_.type);
  tensor.shape = exported->shape.data();
  exported->managed.context = exported.get();
  exported->managed.deleter = [](dlpack::ManagedTensor* managed) {
    delete static_cast<Exported*>(managed->context);
  };
  py::capsule capsule(&exported->managed, dlpack::kCapsule, &drop_unused);
  (void)exported.release();
  return capsule;
}

std::string GpuArray::text() const {
  return fmt::format("<dunlin.GpuArray of shape {} and type {} on GPU {}>",
                     py::repr(shape()).cast<std::string>(), dtype(), device());
}

Array make_gpu_array(DataType type, std::vector<py::ssize_t> shape, int device, const char* what) {
  const std::size_t bytes = count_of(shape) * collective::size_of(type);
  std::shared_ptr<MemoryRegion> memory;
  if (bytes > 0) {
    auto made = MemoryRegion::allocate_on_gpu(GpuAccess::instance().driver(what), device, bytes);
    check(made.status().with_context(what));
    memory = std::move(made).value();
  }
  std::byte* const data = memory ? memory->data() : nullptr;
  auto array = std::make_unique<GpuArray>(type, std::move(shape), device, std::move(memory), data);
  Array view = array->view();
  view.object = view.keeper = py::cast(std::move(array));
  return view;
}

void define_gpu_array(py::module_& module) {
  using py::arg;
  const auto none = py::none();
  py::class_<GpuArray>(
      module, "GpuArray",
      "An array in the memory of a GPU: a result, or one of empty().\n\n"
      "cupy.asarray(), torch.from_dlpack() and numba.cuda.as_cuda_array() make arrays of it\n"
      "without copying. Calls take it as complete: pass the array of the package that writes\n"
      "it instead, if that may still be at work.")
      .def_property_readonly("shape", &GpuArray::shape)
      .def_property_readonly("dtype", &GpuArray::dtype, "The name of the type, as \"float32\".")
      .def_property_readonly("device", &GpuArray::device, "The number of the GPU.")
      .def_property_readonly("size", [](const GpuArray& self) { return self.view().count; })
      .def_property_readonly("nbytes", [](const GpuArray& self) { return self.view().bytes(); })
      .def_property_readonly("__cuda_array_interface__", &GpuArray::interface)
      .def(
          "__dlpack__",
          [](const GpuArray& self, const py::object&, const py::object&, const py::object& target,
             const py::object& copy) { return self.dlpack(target, copy); },
          py::kw_only(), arg("stream") = none, arg("max_version") = none, arg("dl_device") = none,
          arg("copy") = none)
      .def("__dlpack_device__",
           [](const GpuArray& self) { return std::pair(int{dlpack::kCuda}, self.device()); })
      .def("__repr__", &GpuArray::text);
}

}  // namespace dunlin::python
