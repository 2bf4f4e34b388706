#include "runtime/gpu/cuda_stream.h"

#include <fmt/format.h>

namespace dunlin {
namespace {

// Calls `function(arguments...)` with the context current.
template <typename... Parameters, typename... Arguments>
Status call(const CudaLibrary& library, cuda::Context context, std::string_view what,
            cuda::Code (*function)(Parameters...), Arguments... arguments) {
  const CurrentContext current(library, context);
  DUNLIN_TRY(Status(current.status()));
  const cuda::Code code = function(arguments...);
  return code == cuda::kNotReady ? Status::busy() : library.to_status(what, code);
}

// Dunlin's operations cannot be part of a graph: they would wait for work that is recorded, and not
// run. Needs a current context.
Status check_not_captured(const CudaLibrary& library, cuda::Stream stream) {
  if (library->cuStreamIsCapturing == nullptr) return Status::ok();
  int status = cuda::kIsNotCapturing;
  const cuda::Code code = library->cuStreamIsCapturing(stream, &status);
  // The default stream says so when a stream is captured that waits for it.
  if (code != cuda::kCaptureImplicit) {
    DUNLIN_TRY(library.to_status("cuStreamIsCapturing", code));
    if (status == cuda::kIsNotCapturing) return Status::ok();
  }
  return {Code::kInvalidArgument,
          "the stream is being captured into a CUDA graph, of which Dunlin's operations cannot be "
          "a part"};
}

class CudaStream final : public GpuStream {
 public:
  CudaStream(const CudaLibrary& library, cuda::Context context, cuda::Stream stream)
      : library_(library), context_(context), stream_(stream) {}
  ~CudaStream() override {
    const CurrentContext current(library_, context_);
    (void)library_->cuStreamDestroy_v2(stream_);  // outstanding work is still carried out
  }

  Status copy_to_host(void* to, const void* from, std::size_t size) override {
    return call(library_, context_, "cuMemcpyDtoHAsync", library_->cuMemcpyDtoHAsync_v2, to,
                address_of(from), size, stream_);
  }
  Status copy_to_device(void* to, const void* from, std::size_t size) override {
    return call(library_, context_, "cuMemcpyHtoDAsync", library_->cuMemcpyHtoDAsync_v2,
                address_of(to), from, size, stream_);
  }
  Status copy_on_device(void* to, const void* from, std::size_t size) override {
    return call(library_, context_, "cuMemcpyAsync", library_->cuMemcpyAsync, address_of(to),
                address_of(from), size, stream_);
  }
  Status launch(GpuFunction kernel, GpuGrid grid, const void* argument) override {
    void* parameters[] = {const_cast<void*>(argument)};
    return call(library_, context_, "cuLaunchKernel", library_->cuLaunchKernel,
                static_cast<cuda::Function>(kernel.handle), grid.blocks, 1u, 1u, grid.threads, 1u,
                1u, 0u, stream_, parameters, nullptr);
  }
  Status poll() override {
    return call(library_, context_, "cuStreamQuery", library_->cuStreamQuery, stream_);
  }
  NativeGpuStream native() const override { return stream_; }

 private:
  const CudaLibrary& library_;
  cuda::Context context_;
  cuda::Stream stream_;
};

class CudaEvent final : public GpuEvent {
 public:
  CudaEvent(const CudaLibrary& library, cuda::Context context, cuda::Event event)
      : library_(library), context_(context), event_(event) {}
  ~CudaEvent() override {
    const CurrentContext current(library_, context_);
    (void)library_->cuEventDestroy_v2(event_);
  }

  Status record(NativeGpuStream stream) override {
    const CurrentContext current(library_, context_);
    DUNLIN_TRY(Status(current.status()));
    DUNLIN_TRY(check_not_captured(library_, static_cast<cuda::Stream>(stream)));
    return library_.to_status("cuEventRecord",
                              library_->cuEventRecord(event_, static_cast<cuda::Stream>(stream)));
  }
  Status delay(NativeGpuStream stream) override {
    return call(library_, context_, "cuStreamWaitEvent", library_->cuStreamWaitEvent,
                static_cast<cuda::Stream>(stream), event_, 0u);
  }
  Status poll() override {
    return call(library_, context_, "cuEventQuery", library_->cuEventQuery, event_);
  }

 private:
  const CudaLibrary& library_;
  cuda::Context context_;
  cuda::Event event_;
};

class CudaModule final : public GpuModule {
 public:
  CudaModule(const CudaLibrary& library, cuda::Context context, cuda::Module module)
      : library_(library), context_(context), module_(module) {}
  ~CudaModule() override {
    const CurrentContext current(library_, context_);
    (void)library_->cuModuleUnload(module_);
  }

  Result<GpuFunction> find(const char* name) override {
    cuda::Function found = nullptr;
    DUNLIN_TRY(call(library_, context_, fmt::format("cuModuleGetFunction of {}", name),
                    library_->cuModuleGetFunction, &found, module_, name));
    return GpuFunction{found};
  }

 private:
  const CudaLibrary& library_;
  cuda::Context context_;
  cuda::Module module_;
};

}  // namespace

Result<std::unique_ptr<GpuStream>> create_cuda_stream(const CudaLibrary& library,
                                                      cuda::Context context, int device) {
  cuda::Stream stream = nullptr;
  DUNLIN_TRY(call(library, context, fmt::format("cuStreamCreate on GPU {}", device),
                  library->cuStreamCreate, &stream, cuda::kStreamNonBlocking));
  return std::unique_ptr<GpuStream>(std::make_unique<CudaStream>(library, context, stream));
}

Result<std::unique_ptr<GpuEvent>> create_cuda_event(const CudaLibrary& library,
                                                    cuda::Context context, int device) {
  cuda::Event event = nullptr;
  DUNLIN_TRY(call(library, context, fmt::format("cuEventCreate on GPU {}", device),
                  library->cuEventCreate, &event, cuda::kEventDisableTiming));
  return std::unique_ptr<GpuEvent>(std::make_unique<CudaEvent>(library, context, event));
}

Result<std::unique_ptr<GpuModule>> load_cuda_module(const CudaLibrary& library,
                                                    cuda::Context context, int device,
                                                    const void* image) {
  cuda::Module module = nullptr;
  DUNLIN_TRY(call(library, context, fmt::format("cuModuleLoadData on GPU {}", device),
                  library->cuModuleLoadData, &module, image));
  return std::unique_ptr<GpuModule>(std::make_unique<CudaModule>(library, context, module));
}

}  // namespace dunlin
