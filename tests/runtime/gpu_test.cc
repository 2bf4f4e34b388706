// The CUDA driver over the stand-in for its library (tests/fake_cuda), and regions of GPU memory.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>

#include "collectives/kernels/gpu/gpu_kernels.h"
#include "runtime/gpu/cuda_driver.h"
#include "runtime/gpu/cuda_interface.h"
#include "runtime/memory/region.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/gpu_range.h"
#include "tests/support/paths.h"

namespace dunlin {
namespace {

using testing::FakeCuda;
using testing::FakeGpu;

const std::string kFakeCuda = testing::built("tests/fake_cuda/libcuda.so.1");
const std::string kOldFakeCuda = testing::built("tests/fake_cuda/libold_fake_cuda.so");

bool holds(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string_view::npos;
}

// The library is missing, or it is not the CUDA driver.
TEST(CudaDriver, SaysWhatIsMissing) {
  const Status none = load_cuda_driver("libcuda-that-is-not-there.so.1").status();
  EXPECT_EQ(none.code(), Code::kUnavailable);
  EXPECT_TRUE(holds(none, "no CUDA driver: libcuda-that-is-not-there.so.1")) << none.to_string();
  const Status other = load_cuda_driver("libm.so.6").status();
  EXPECT_EQ(other.code(), Code::kUnavailable);
  EXPECT_TRUE(holds(other, "has no cuInit")) << other.to_string();
}

class CudaDriverTest : public ::testing::Test {
 protected:
  CudaDriverTest() { state().reset(); }
  ~CudaDriverTest() override {
    EXPECT_EQ(state().depth(), 0) << "a context was left current";
    EXPECT_EQ(state().allocations(), 0);
    EXPECT_EQ(state().opened(), 0);
    EXPECT_EQ(state().streams, 0);
    EXPECT_EQ(state().events, 0);
    EXPECT_EQ(state().modules, 0);
  }
  static FakeCuda& state() {
    static void* const library = dlopen(kFakeCuda.c_str(), RTLD_NOW);
    return reinterpret_cast<testing::FakeCudaState*>(dlsym(library, "fake_cuda"))();
  }
  static std::shared_ptr<GpuDriver> load() { return load_cuda_driver(kFakeCuda).value(); }
};

TEST_F(CudaDriverTest, DescribesTheDevicesWithoutWakingThem) {
  state().attributes = {
      {cuda::kComputeMajor, 9}, {cuda::kDmaBufSupported, 1}, {cuda::kWritesOrdering, 100}};
  const auto driver = load();
  ASSERT_EQ(driver->devices().size(), 2u);
  const GpuDevice& second = driver->devices()[1];
  EXPECT_EQ(second.number, 1);
  EXPECT_EQ(second.name, "Fake A1");
  EXPECT_EQ(second.pci_bus_id, "0000:af:00.0");
  EXPECT_EQ(second.memory_bytes, std::size_t{1} << 34);
  EXPECT_EQ(second.compute_major, 9);
  EXPECT_TRUE(second.dma_buf.is_ok());
  EXPECT_EQ(second.writes, GpuWrites::kOrdered);
  EXPECT_EQ(state().contexts, 0);
}

TEST_F(CudaDriverTest, SaysWhatADeviceLacks) {
  auto driver = load();
  EXPECT_EQ(load(), driver) << "one for all";
  const GpuDevice& device = driver->devices()[0];
  EXPECT_TRUE(holds(device.dma_buf, "dma-buf")) << device.dma_buf.to_string();
  EXPECT_TRUE(holds(device.peer_mapping, "no GPUDirect RDMA")) << device.peer_mapping.to_string();
  EXPECT_EQ(device.writes, GpuWrites::kUnordered);
  driver.reset();
  state().attributes = {{cuda::kGpuDirectSupported, 1}, {cuda::kFlushOptions, 1}};
  const auto again = load();
  EXPECT_EQ(again->devices()[0].writes, GpuWrites::kNeedFlush);
  const bool has_module = access("/sys/module/nvidia_peermem", F_OK) == 0;
  EXPECT_EQ(again->devices()[0].peer_mapping.is_ok(), has_module);
}

TEST_F(CudaDriverTest, AnOldDriverLacksTheFunctions) {
  const auto driver = load_cuda_driver(kOldFakeCuda).value();
  EXPECT_TRUE(holds(driver->devices()[0].dma_buf, "11.7"));
  EXPECT_EQ(driver->devices()[0].writes, GpuWrites::kUnordered);
  EXPECT_EQ(driver->flush_writes(0).code(), Code::kUnavailable);
  std::byte* const data = driver->allocate(0, 64).value();
  EXPECT_EQ(driver->export_dma_buf(0, data, 64).status().code(), Code::kUnavailable);
  driver->free(0, data);
}

TEST_F(CudaDriverTest, NoDeviceIsAnErrorInWords) {
  state().devices = 0;
  EXPECT_TRUE(holds(load_cuda_driver(kFakeCuda).status(), "finds no device"));
  state().init_code = cuda::kNoDevice;
  const Status status = load_cuda_driver(kFakeCuda).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(holds(status, "cuInit: CUDA_ERROR_FAKE")) << status.to_string();
}

TEST_F(CudaDriverTest, TellsWhichGpuIsCurrent) {
  EXPECT_EQ(current_gpu("libcuda-that-is-not-there.so.1"), "");
  EXPECT_EQ(current_gpu(kFakeCuda), "");
  void* const library = dlopen(kFakeCuda.c_str(), RTLD_NOW);
  const auto push =
      reinterpret_cast<cuda::Code (*)(cuda::Context)>(dlsym(library, "cuCtxPushCurrent_v2"));
  const auto pop =
      reinterpret_cast<cuda::Code (*)(cuda::Context*)>(dlsym(library, "cuCtxPopCurrent_v2"));
  // The context of device 1 in the fake library.
  push(reinterpret_cast<cuda::Context>(2));
  EXPECT_EQ(current_gpu(kFakeCuda), "0000:af:00.0");
  cuda::Context popped = nullptr;
  pop(&popped);
  EXPECT_EQ(current_gpu(kFakeCuda), "");
}

TEST(CurrentGpu, LoadsNothing) {
  // A copy of the library that no other test has loaded.
  const auto copy = std::filesystem::temp_directory_path() /
                    ("dunlin-fake-cuda-" + std::to_string(getpid()) + ".so");
  std::filesystem::copy_file(kFakeCuda, copy);
  EXPECT_EQ(current_gpu(copy), "");
  EXPECT_EQ(dlopen(copy.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
  std::filesystem::remove(copy);
}

TEST_F(CudaDriverTest, AllocatesAndFindsWhoOwnsAnAddress) {
  const auto driver = load();
  std::byte* const data = driver->allocate(1, 1000).value();
  const auto found = driver->find(data + 999).value();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->device, 1);
  EXPECT_EQ(found->base, data);
  EXPECT_EQ(found->size, 1000u);
  int local = 0;
  EXPECT_FALSE(driver->find(&local).value().has_value());
  state().is_managed = true;
  EXPECT_EQ(driver->find(data).status().code(), Code::kUnavailable);
  driver->free(1, data);
  EXPECT_EQ(state().contexts, 1) << "one, kept";
}

TEST_F(CudaDriverTest, AFailedAllocationSaysHowMuchWhere) {
  state().failing_name = "cuMemAlloc";
  state().failing_code = cuda::kOutOfMemory;
  state().failing_call = 1;
  const Status status = load()->allocate(1, 1000).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_TRUE(holds(status, "cuMemAlloc of 1000 bytes on GPU 1: CUDA_ERROR_OUT_OF_MEMORY"))
      << status.to_string();
  EXPECT_EQ(load()->allocate(2, 1000).status().code(), Code::kOutOfRange);
}

TEST_F(CudaDriverTest, CopiesAreDoneWhenTheStreamSaysSo) {
  const auto driver = load();
  std::byte* const data = driver->allocate(0, 8).value();
  const auto stream = driver->create_stream(0).value();
  std::array<std::byte, 8> from;
  std::array<std::byte, 8> back{};
  from.fill(std::byte{7});
  state().hold();
  ASSERT_TRUE(stream->copy_to_device(data, from.data(), from.size()).is_ok());
  EXPECT_TRUE(stream->poll().is_busy());
  state().release();
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + std::chrono::seconds(60);
  EXPECT_TRUE(await(*stream, clock, deadline, "a copy").is_ok());
  ASSERT_TRUE(stream->copy_to_host(back.data(), data, back.size()).is_ok());
  EXPECT_TRUE(await(*stream, clock, deadline, "a copy").is_ok());
  EXPECT_EQ(back, from);
  state().work_code = 719;
  state().failing_work = 1;
  ASSERT_TRUE(stream->copy_to_host(back.data(), data, back.size()).is_ok());
  const Status status = await(*stream, clock, deadline, "the third copy");
  EXPECT_EQ(status.code(), Code::kIoError);
  EXPECT_TRUE(holds(status, "the third copy: cuStreamQuery")) << status.to_string();
  driver->free(0, data);
}

TEST_F(CudaDriverTest, ExportsWholePagesAndFlushes) {
  state().attributes = {{cuda::kDmaBufSupported, 1}};
  const auto driver = load();
  std::byte* const data = driver->allocate(0, 20000).value();
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto exported = driver->export_dma_buf(0, data + 100, 5000);
  ASSERT_TRUE(exported.is_ok()) << exported.status().to_string();
  EXPECT_TRUE(exported->fd.is_open());
  EXPECT_EQ(exported->offset, reinterpret_cast<std::uintptr_t>(data + 100) % page);
  EXPECT_TRUE(driver->synchronize_operations(0, data).is_ok());
  EXPECT_EQ(state().synchronized_pointers, 1);
  EXPECT_TRUE(driver->flush_writes(0).is_ok());
  EXPECT_EQ(state().flushes, 1);
  driver->free(0, data);
}

TEST_F(CudaDriverTest, SynchronizesOperationsOnMemoryOfPiecesByTheContext) {
  const auto driver = load();
  const testing::GpuRangeMemory memory(5000, 100);
  const unsigned before = state().context_flags;
  EXPECT_TRUE(driver->synchronize_operations(0, memory.data()).is_ok());
  EXPECT_EQ(state().synchronized_pointers, 0);
  EXPECT_EQ(state().context_flags, before | cuda::kContextSyncMemops);
  EXPECT_TRUE(driver->synchronize_operations(0, memory.data()).is_ok());
  EXPECT_EQ(state().context_flag_sets, 1);
}

TEST_F(CudaDriverTest, CopiesBetweenAllocationsAndOrdersStreamsByEvents) {
  const auto driver = load();
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + std::chrono::seconds(60);
  std::byte* const data = driver->allocate(0, 8).value();
  std::byte* const other = driver->allocate(0, 8).value();
  const auto first = driver->create_stream(0).value();
  const auto second = driver->create_stream(0).value();
  const auto event = driver->create_event(0).value();
  EXPECT_TRUE(event->poll().is_ok()) << "nothing was recorded";
  std::array<std::byte, 8> from;
  std::array<std::byte, 8> back{};
  from.fill(std::byte{7});
  state().delay_us = 2000;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    state().seed = seed;
    from.fill(static_cast<std::byte>(seed));
    ASSERT_TRUE(first->copy_to_device(data, from.data(), from.size()).is_ok());
    ASSERT_TRUE(event->record(first->native()).is_ok());
    ASSERT_TRUE(event->delay(second->native()).is_ok());
    ASSERT_TRUE(second->copy_on_device(other, data, from.size()).is_ok());
    ASSERT_TRUE(second->copy_to_host(back.data(), other, back.size()).is_ok());
    ASSERT_TRUE(await(*second, clock, deadline, "copies").is_ok());
    EXPECT_TRUE(event->poll().is_ok());
    EXPECT_EQ(back, from);
  }
  driver->free(0, data);
  driver->free(0, other);
}

// Otherwise, a program that captures a graph while Dunlin is at work would lose the graph.
TEST_F(CudaDriverTest, WorksWhileTheApplicationCapturesAGraph) {
  const auto driver = load();
  std::byte* const memory = driver->allocate(0, 64).value();
  state().is_capturing = true;
  {
    const auto stream = driver->create_stream(0).value();
    const auto event = driver->create_event(0).value();
    std::array<std::byte, 64> host{};
    EXPECT_TRUE(stream->copy_to_device(memory, host.data(), host.size()).is_ok());
    EXPECT_TRUE(event->record(stream->native()).is_ok());
    while (stream->poll().is_busy()) {
    }
    EXPECT_TRUE(event->poll().is_ok());
    EXPECT_TRUE(driver->find(memory).is_ok());
    // The stream that is captured would never do what Dunlin waits for.
    state().captured_stream = stream->native();
    for (void* const captured : {stream->native(), NativeGpuStream()}) {
      const Status refused = event->record(captured);
      EXPECT_TRUE(holds(refused, "captured into a CUDA graph")) << refused.to_string();
    }
    state().captured_stream = nullptr;
  }
  driver->free(0, memory);
  EXPECT_EQ(state().allocations(), 0);
  state().is_capturing = false;
}

// Another process opens the memory, and sees and writes the same bytes.
TEST_F(CudaDriverTest, MemoryIsOpenedByOtherProcesses) {
  const auto driver = load();
  std::byte* const data = driver->allocate(1, 5000).value();
  std::byte* const next = driver->allocate(1, 100).value();
  const SharedGpuMemory shared = driver->share(1, data).value();
  EXPECT_EQ(shared.size, 5000u);
  EXPECT_EQ(std::string_view(shared.pci_bus_id.data()), "0000:af:00.0");
  EXPECT_FALSE(shared == driver->share(1, next).value());
  EXPECT_TRUE(shared == driver->share(1, data).value());
  EXPECT_EQ(driver->open(1, shared).value(), data) << "its own memory";
  EXPECT_EQ(driver->share(1, data + 100).status().code(), Code::kInvalidArgument);
  state().contents(data, 5000)[4999] = std::byte{3};
  const pid_t child = fork();
  if (child == 0) {
    const auto opened = driver->open(1, shared);
    if (!opened) _exit(1);
    std::byte* const contents = state().contents(*opened, 5000);
    if (contents == nullptr || contents[4999] != std::byte{3}) _exit(2);
    contents[0] = std::byte{9};
    const auto again = load()->open(1, shared);
    if (!again || *again != *opened || state().opened() != 1) _exit(3);
    driver->close(1, shared);
    if (state().opened() != 1) _exit(4);
    driver->close(1, shared);
    _exit(state().opened() == 0 ? 0 : 5);
  }
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_EQ(result, 0);
  EXPECT_EQ(state().contents(data, 5000)[0], std::byte{9});
  driver->free(1, data);
  const pid_t late = fork();
  if (late == 0) _exit(driver->open(1, shared).status().code() == Code::kNotFound ? 0 : 1);
  ASSERT_EQ(waitpid(late, &result, 0), late);
  EXPECT_EQ(result, 0) << "memory that was freed cannot be opened";
  driver->free(1, next);
}

// A host address of GPU memory is none that the CPU can follow.
TEST_F(CudaDriverTest, TheHostCannotFollowItsAddresses) {
  const auto driver = load();
  std::byte* const data = driver->allocate(0, 64).value();
  const int null = open("/dev/null", O_WRONLY);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  EXPECT_EQ(write(pipe_ends[1], data, 8), -1);
  EXPECT_EQ(errno, EFAULT);
  for (const int fd : {null, pipe_ends[0], pipe_ends[1]}) close(fd);
  driver->free(0, data);
}

TEST_F(CudaDriverTest, LaunchesKernelsOfAModule) {
  const auto driver = load();
  const char image[16] = {};
  const auto module = driver->load_module(0, image).value();
  const Status missing = module->find("no_such_kernel").status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_TRUE(holds(missing, "cuModuleGetFunction of no_such_kernel")) << missing.to_string();
  EXPECT_TRUE(module->find("dunlin_reduce_float32_sum").value().is_found());
}

// A kernel that leaves its allocation fails later, in words, and so does all that comes after.
TEST_F(CudaDriverTest, AKernelThatLeavesItsMemoryIsFound) {
  const auto driver = load();
  const SteadyClock clock;
  const auto kernels = collective::GpuKernels::load(driver, 0).value();
  const auto stream = driver->create_stream(0).value();
  std::byte* const data = driver->allocate(0, 64).value();
  const std::byte* const inputs[] = {data, data};
  ASSERT_TRUE(kernels->reduce(*stream, {}, inputs, std::span(&data, 1), 17).is_ok());
  const Status status =
      await(*stream, clock, clock.now() + std::chrono::seconds(60), "a reduction");
  EXPECT_TRUE(holds(status, "a reduction: cuStreamQuery")) << status.to_string();
  driver->free(0, data);
}

// Whatever call of the driver fails: an error that names it, and nothing is left.
TEST_F(CudaDriverTest, AnyCallMayFail) {
  const SteadyClock clock;
  for (std::uint64_t failing = 1;; ++failing) {
    state().reset();
    const auto driver = load();
    state().failing_code = cuda::kInvalidHandle;
    state().failing_call = failing;
    const Status status = [&]() -> Status {
      DUNLIN_ASSIGN(const auto kernels, collective::GpuKernels::load(driver, 0));
      DUNLIN_ASSIGN(const auto stream, driver->create_stream(0));
      DUNLIN_ASSIGN(const auto event, driver->create_event(0));
      DUNLIN_ASSIGN(std::byte* const data, driver->allocate(0, 64));
      const std::byte* const inputs[] = {data, data};
      Status done = kernels->reduce(*stream, {}, inputs, std::span(&data, 1), 16);
      if (done.is_ok()) done = event->record(stream->native());
      if (done.is_ok()) done = event->delay(stream->native());
      if (done.is_ok()) done = driver->share(0, data).status();
      if (done.is_ok())
        done = await(*stream, clock, clock.now() + std::chrono::seconds(60), "a reduction");
      state().failing_call = 0;
      driver->free(0, data);
      return done;
    }();
    EXPECT_EQ(state().allocations(), 0) << state().failed_call;
    if (status.is_ok()) {
      EXPECT_GT(failing, 40u) << "calls were counted";
      break;
    }
    EXPECT_TRUE(holds(status, state().failed_call)) << failing << ": " << status.to_string();
  }
}

TEST(GpuRegion, WrappingFindsOutTheKind) {
  FakeGpu::Options options;
  options.devices = 2;
  const auto gpu = std::make_shared<FakeGpu>(std::move(options));
  std::byte* const data = gpu->allocate(1, 4096).value();
  const auto region = MemoryRegion::wrap(data + 96, 4000, gpu).value();
  EXPECT_EQ(region->kind(), MemoryKind::kCuda);
  EXPECT_EQ(region->gpu(), gpu.get());
  EXPECT_EQ(region->gpu_device(), 1);
  EXPECT_FALSE(region->is_owned());
  std::array<std::byte, 64> local{};
  const auto host = MemoryRegion::wrap(local.data(), local.size(), gpu).value();
  EXPECT_EQ(host->kind(), MemoryKind::kHost);
  EXPECT_EQ(host->gpu(), nullptr);
  EXPECT_EQ(MemoryRegion::wrap(nullptr, 8, gpu).status().code(), Code::kInvalidArgument);
}

TEST(GpuRegion, ARangeThatLeavesTheDeviceIsRefused) {
  const auto gpu = std::make_shared<FakeGpu>();
  std::byte* const data = gpu->allocate(0, 4096).value();
  const Status status = MemoryRegion::wrap(data, std::size_t{1} << 40, gpu).status();
  EXPECT_EQ(status.code(), Code::kOutOfRange);
  EXPECT_TRUE(holds(status, "GPU 0")) << status.to_string();
}

TEST(GpuRegion, OwnedMemoryIsGivenBackOnce) {
  const auto gpu = std::make_shared<FakeGpu>();
  auto region = MemoryRegion::allocate_on_gpu(gpu, 0, 4096).value();
  EXPECT_EQ(region->kind(), MemoryKind::kCuda);
  EXPECT_TRUE(region->is_owned());
  EXPECT_EQ(region->fd(), -1);
  EXPECT_EQ(gpu->allocations(), 1);
  region.reset();
  EXPECT_EQ(gpu->allocations(), 0);
  EXPECT_EQ(MemoryRegion::allocate_on_gpu(gpu, 0, 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(MemoryRegion::allocate_on_gpu(gpu, 3, 64).status().code(), Code::kOutOfRange);
}

}  // namespace
}  // namespace dunlin
