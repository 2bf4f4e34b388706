#include "tests/support/fake_gpu.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace dunlin::testing {
namespace {

std::byte* map(int fd, std::size_t size, int protection) {
  void* const data = mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

Status unavailable() {
  return {Code::kUnavailable, "not on this GPU"};
}

}  // namespace

class FakeGpu::Stream final : public GpuStream {
 public:
  explicit Stream(FakeGpu& gpu) : gpu_(gpu) {}
  Status copy_to_host(void* to, const void* from, std::size_t size) override {
    return begin(static_cast<std::byte*>(to), gpu_.contents(from, size));
  }
  Status copy_to_device(void* to, const void* from, std::size_t size) override {
    return begin(gpu_.contents(to, size).data(), {static_cast<const std::byte*>(from), size});
  }
  Status copy_on_device(void*, const void*, std::size_t) override { return unavailable(); }
  Status launch(GpuFunction, GpuGrid, const void*) override { return unavailable(); }
  NativeGpuStream native() const override { return nullptr; }
  Status poll() override {
    if (pending_.empty()) return Status::ok();
    if (gpu_.options_.polls_per_copy < 0 || ++polls_ < gpu_.options_.polls_per_copy)
      return Status::busy();
    polls_ = 0;
    for (const auto& [to, from] : pending_) std::memcpy(to, from.data(), from.size());
    gpu_.copies_ += static_cast<int>(pending_.size());
    pending_.clear();
    return gpu_.options_.copying;
  }

 private:
  Status begin(std::byte* to, std::span<const std::byte> from) {
    pending_.emplace_back(to, from);
    return Status::ok();
  }

  FakeGpu& gpu_;
  std::vector<std::pair<std::byte*, std::span<const std::byte>>> pending_;
  int polls_ = 0;
};

FakeGpu::FakeGpu(Options options) : options_(std::move(options)) {
  for (int number = 0; number < options_.devices; ++number) {
    GpuDevice device;
    device.number = number;
    device.name = "fake GPU";
    device.dma_buf = options_.dma_buf;
    device.peer_mapping = options_.peer_mapping;
    device.writes = options_.writes;
    devices_.push_back(std::move(device));
  }
}

FakeGpu::~FakeGpu() {
  while (!allocations_.empty()) free(0, allocations_.begin()->first);
}

const FakeGpu::Allocation* FakeGpu::allocation_of(const void* address,
                                                  const std::byte** base) const {
  const auto* const wanted = static_cast<const std::byte*>(address);
  for (const auto& [data, allocation] : allocations_) {
    *base = data;
    if (wanted >= data && wanted < data + allocation.size) return &allocation;
  }
  return nullptr;
}

std::span<std::byte> FakeGpu::contents(const void* data, std::size_t size) {
  const std::byte* base = nullptr;
  const Allocation* const found = allocation_of(data, &base);
  if (found == nullptr) return {};
  return {found->backing + (static_cast<const std::byte*>(data) - base), size};
}

void FakeGpu::hide() {
  for (const auto& [data, allocation] : allocations_) mprotect(data, allocation.size, PROT_NONE);
}

Result<std::optional<GpuAllocation>> FakeGpu::find(const void* address) {
  const std::byte* base = nullptr;
  const Allocation* const found = allocation_of(address, &base);
  if (found == nullptr) return std::optional<GpuAllocation>();
  return std::optional(GpuAllocation{found->device, const_cast<std::byte*>(base), found->size});
}

Result<std::byte*> FakeGpu::allocate(int device, std::size_t size) {
  if (device < 0 || device >= options_.devices)
    return Status(Code::kOutOfRange, fmt::format("GPU {} of {}", device, options_.devices));
  Fd fd(memfd_create("fake-gpu", MFD_CLOEXEC));
  const bool is_made = fd.is_open() && ftruncate(fd.get(), static_cast<off_t>(size)) == 0;
  const int protection = options_.is_registrable ? PROT_READ | PROT_WRITE : PROT_NONE;
  std::byte* const data = is_made ? map(fd.get(), size, protection) : nullptr;
  std::byte* const backing = is_made ? map(fd.get(), size, PROT_READ | PROT_WRITE) : nullptr;
  if (data == nullptr || backing == nullptr)
    return Status(Code::kResourceExhausted, "no memory for a fake GPU");
  allocations_.emplace(data, Allocation{device, size, backing, std::move(fd)});
  return data;
}

void FakeGpu::free(int, std::byte* data) noexcept {
  const auto found = allocations_.find(data);
  if (found == allocations_.end()) return;
  munmap(data, found->second.size);
  munmap(found->second.backing, found->second.size);
  allocations_.erase(found);
}

Result<std::unique_ptr<GpuStream>> FakeGpu::create_stream(int) {
  if (!options_.streams.is_ok()) return options_.streams;
  return std::unique_ptr<GpuStream>(std::make_unique<Stream>(*this));
}

Result<std::unique_ptr<GpuEvent>> FakeGpu::create_event(int) {
  return unavailable();
}

Result<std::unique_ptr<GpuModule>> FakeGpu::load_module(int, const void*) {
  return unavailable();
}

Result<SharedGpuMemory> FakeGpu::share(int, std::byte*) {
  return unavailable();
}

Result<std::byte*> FakeGpu::open(int, const SharedGpuMemory&) {
  return unavailable();
}

bool FakeGpu::close(int, const SharedGpuMemory&) noexcept {
  return true;
}

Status FakeGpu::synchronize_operations(int, std::byte*) {
  return options_.synchronizing;
}

Result<DmaBuf> FakeGpu::export_dma_buf(int, std::byte* data, std::size_t) {
  ++exports_;
  if (!options_.exporting.is_ok()) return options_.exporting;
  const std::byte* base = nullptr;
  const Allocation* const found = allocation_of(data, &base);
  if (found == nullptr) return Status(Code::kInvalidArgument, "no memory of this GPU");
  DmaBuf exported;
  exported.fd = Fd(dup(found->fd.get()));
  exported.offset = static_cast<std::uint64_t>(data - base);
  return exported;
}

Status FakeGpu::flush_writes(int) {
  ++flushes_;
  return Status::ok();
}

}  // namespace dunlin::testing
