#include "bindings/python/gpu_memory.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "bindings/pybind/interrupt.h"
#include "bindings/python/array_reading.h"
#include "bindings/python/errors.h"
#include "bindings/python/job.h"
#include "runtime/gpu/cuda_driver.h"

namespace dunlin::python {

namespace py = pybind11;
using collective::DataType;

namespace {

constexpr const char* kInterface = "__cuda_array_interface__";
constexpr std::uintptr_t kLegacyDefaultStream = 1;  // CU_STREAM_LEGACY
// How long a thread that waits for the work of other streams sleeps between two looks.
constexpr std::chrono::microseconds kReadyNap{50};

void check_with(Status status, const char* what) {
  check(std::move(status).with_context(what));
}

template <typename T>
T take_with(Result<T> result, const char* what) {
  check_with(result.status(), what);
  return std::move(result).value();
}

// Converts an entry of the interface.
template <typename Value>
Value entry(const py::dict& interface, const char* name, const char* what) {
  if (!interface.contains(name)) refuse(what, fmt::format("{} has no '{}'", kInterface, name));
  const py::object given = interface[name];
  try {
    return given.cast<Value>();
  } catch (const py::cast_error&) {
    refuse(what, fmt::format("{}: '{}' can't be {}", kInterface, name,
                             py::repr(given).cast<std::string>()));
  }
}

bool has_entry(const py::dict& interface, const char* name) {
  return interface.contains(name) && !interface[name].is_none();
}

// Types are written as NumPy does: "<f4".
DataType type_of(const std::string& text, const char* what) {
  std::size_t bytes = 0;
  for (const char digit : std::string_view(text).substr(std::min<std::size_t>(2, text.size()))) {
    if (digit < '0' || digit > '9' || bytes > 100) refuse_type(what, text);
    bytes = bytes * 10 + static_cast<std::size_t>(digit - '0');
  }
  const auto found = text.size() < 3 ? std::nullopt : data_type_of(text[1], bytes);
  const bool is_native = !text.empty() && (text[0] == '<' || text[0] == '=' || bytes == 1);
  if (!found || !is_native) refuse_type(what, text + " (bfloat16 arrays can be passed by DLPack)");
  return *found;
}

void check_contiguous(const Array& view, const py::dict& interface, const char* what) {
  if (!has_entry(interface, "strides")) return;
  const auto strides = entry<std::vector<std::int64_t>>(interface, "strides", what);
  const std::vector<std::int64_t> shape(view.shape.begin(), view.shape.end());
  if (strides.size() != shape.size())
    refuse(what,
           fmt::format("{} has {} axes, but {} strides", kInterface, shape.size(), strides.size()));
  const auto element = static_cast<std::int64_t>(collective::size_of(view.type));
  if (!is_contiguous(shape, strides, element)) refuse_strides(what);
}

// The stream that the interface names; null: there is nothing to wait for.
NativeGpuStream stream_of(const py::dict& interface, int version, const char* what) {
  std::uintptr_t handle = 0;
  if (version < 3) {
    handle = kLegacyDefaultStream;
  } else if (has_entry(interface, "stream")) {
    handle = entry<std::uintptr_t>(interface, "stream", what);
    if (handle == 0)
      refuse(what, fmt::format("{}: stream 0 is ambiguous, and not allowed; 1 is the legacy "
                               "default stream, 2 the one of the thread",
                               kInterface));
  }
  return reinterpret_cast<NativeGpuStream>(handle);
}

// The device of this thread. 0 without one.
int current_device(GpuDriver& driver) {
  const std::string bus = current_gpu();
  const auto found = std::ranges::find(driver.devices(), bus, &GpuDevice::pci_bus_id);
  return bus.empty() || found == driver.devices().end() ? 0 : found->number;
}

}  // namespace

GpuAccess& GpuAccess::instance() {
  static GpuAccess* const access = new GpuAccess();
  return *access;
}

const std::shared_ptr<GpuDriver>& GpuAccess::driver(const char* what) {
  if (!driver_) driver_ = take_with(load_cuda_driver(), what);
  return driver_;
}

NativeGpuStream GpuAccess::stream_for(int device, const char* what) {
  auto& streams = streams_[device];
  auto chosen =
      std::ranges::find_if(streams, [](const auto& stream) { return stream->poll().is_ok(); });
  if (chosen == streams.end() && streams.size() < kMostStreams) {
    streams.push_back(take_with(driver(what)->create_stream(device), what));
    return streams.back()->native();
  }
  if (chosen == streams.end()) chosen = streams.begin();  // the longest time in use
  std::rotate(chosen, chosen + 1, streams.end());
  return streams.back()->native();
}

void refuse_gpu(const char* what) {
  refuse(what,
         "the array is in the memory of a GPU, and this call works in host memory; copy the array "
         "there (cupy.asnumpy(x), tensor.cpu()). all_reduce, reduce, broadcast, all_gather, "
         "reduce_scatter, all_to_all, partial_all_reduce, neighbor_average, Window, and "
         "StochasticReduce and GroupAverage with gpu=N take memory of GPUs");
}

bool has_gpu_interface(py::handle object) {
  return py::hasattr(object, kInterface);
}

void find_gpu(Array& view, int device, const char* what) {
  GpuDriver& driver = *GpuAccess::instance().driver(what);
  if (view.count == 0) {
    view.gpu = device >= 0 ? device : current_device(driver);
    return;
  }
  const auto find = [&](const std::byte* address) {
    auto found = driver.find(address);
    if (found.status().code() == Code::kUnavailable) {
      refuse(what,
             "the array is in managed memory, which moves between host and device; copy it to "
             "memory of the GPU or of the host");
    }
    return take_with(std::move(found), what);
  };
  const auto first = find(view.data);
  if (!first) {
    refuse(what, fmt::format("address {} is no memory of a GPU: it was freed, or it is in host "
                             "memory",
                             static_cast<const void*>(view.data)));
  }
  if (device >= 0 && first->device != device) {
    refuse(what, fmt::format("the array says that it is in the memory of GPU {}, but it is in that "
                             "of GPU {}",
                             device, first->device));
  }
  const auto last = find(view.data + view.bytes() - 1);
  if (!last || last->device != first->device) {
    refuse(what, fmt::format("the array has {} bytes, and its end is not in the memory of GPU {}",
                             view.bytes(), first->device));
  }
  view.gpu = first->device;
}

void set_ready_after(Array& view, NativeGpuStream stream, const char* what) {
  std::shared_ptr<GpuEvent> event =
      take_with(GpuAccess::instance().driver(what)->create_event(*view.gpu), what);
  check_with(event->record(stream).with_context(fmt::format("the stream {} of the array", stream)),
             what);
  view.ready = std::move(event);
}

Array view_of_gpu_interface(py::handle object, const char* what) {
  const py::object given = object.attr(kInterface);
  if (!py::isinstance<py::dict>(given))
    refuse(what, fmt::format("{} is no dictionary", kInterface));
  const auto interface = py::reinterpret_borrow<py::dict>(given);
  const int version = entry<int>(interface, "version", what);
  if (version < 2)
    refuse(what, fmt::format("version {} of {}; 2 and 3 can be read", version, kInterface));
  if (has_entry(interface, "mask")) {
    refuse(what,
           "the array has a mask, which calls can't respect; fill in the masked elements, and pass "
           "an array without a mask");
  }
  Array view;
  view.type = type_of(entry<std::string>(interface, "typestr", what), what);
  view.shape = entry<std::vector<py::ssize_t>>(interface, "shape", what);
  if (std::ranges::any_of(view.shape, [](py::ssize_t extent) { return extent < 0; }))
    refuse(what, fmt::format("{} has a negative extent", kInterface));
  view.count = count_of(view.shape);
  check_contiguous(view, interface, what);
  const auto data = entry<std::pair<std::uintptr_t, bool>>(interface, "data", what);
  view.data = reinterpret_cast<std::byte*>(data.first);
  view.is_writable = !data.second;
  view.keeper = py::reinterpret_borrow<py::object>(object);
  find_gpu(view, -1, what);
  if (NativeGpuStream stream = stream_of(interface, version, what);
      stream != nullptr && view.count > 0) {
    set_ready_after(view, stream, what);
  }
  return view;
}

void await_ready(const Array& array, const char* what) {
  if (!array.ready) return;
  const binding::Session::Interrupt interrupt = interrupt_of_thread();
  const Status status = released([&] {
    for (;;) {
      Status done = array.ready->poll();
      if (!done.is_busy()) return done;
      if (Status told = interrupt ? interrupt() : Status::ok(); !told.is_ok()) return told;
      std::this_thread::sleep_for(kReadyNap);
    }
  });
  check_with(status, what);
}

}  // namespace dunlin::python
