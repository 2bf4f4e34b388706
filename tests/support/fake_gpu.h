// FakeGpu: a GpuDriver without a GPU. Options disable single features.
//
// Its memory is host memory that is mapped twice. The addresses that it returns are not accessible,
// as with a GPU: a process that dereferences one is killed, and the kernel refuses to register
// them. With is_registrable, devices may access the memory. The driver copies through the other
// mapping. A copy takes place only after a number of calls of poll(), so that a caller that does
// not wait finds the old bytes. FakeGpu has no events, kernels or memory of other processes; the
// stand-in for CUDA's library has them (tests/fake_cuda). One thread.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/gpu/driver.h"

namespace dunlin::testing {

class FakeGpu final : public GpuDriver {
 public:
  struct Options {
    int devices = 1;
    Status dma_buf;
    Status peer_mapping = Status(Code::kUnavailable, "no nvidia-peermem here");
    GpuWrites writes = GpuWrites::kOrdered;
    Status synchronizing;  // of synchronize_operations()
    Status exporting;      // of export_dma_buf()
    Status streams;        // of create_stream()
    Status copying;        // of poll()
    // Its addresses can be registered like host memory until hide() is called.
    bool is_registrable = false;
    int polls_per_copy = 3;  // -1: copies never complete
  };

  explicit FakeGpu(Options options);
  FakeGpu() : FakeGpu(Options{}) {}
  ~FakeGpu() override;
  FakeGpu(const FakeGpu&) = delete;
  FakeGpu& operator=(const FakeGpu&) = delete;

  // The contents of the memory.
  std::span<std::byte> contents(const void* data, std::size_t size);
  // Makes the addresses of all allocations inaccessible.
  void hide();
  Options& options() { return options_; }
  int copies() const { return copies_; }
  int flushes() const { return flushes_; }
  int exports() const { return exports_; }
  int allocations() const { return static_cast<int>(allocations_.size()); }

  const std::vector<GpuDevice>& devices() const override { return devices_; }
  Result<std::optional<GpuAllocation>> find(const void* address) override;
  Result<std::byte*> allocate(int device, std::size_t size) override;
  void free(int device, std::byte* data) noexcept override;
  Status pin(int, std::span<std::byte>) override { return Status::ok(); }
  void unpin(int, std::byte*) noexcept override {}
  Result<std::unique_ptr<GpuStream>> create_stream(int device) override;
  Result<std::unique_ptr<GpuEvent>> create_event(int device) override;
  Result<std::unique_ptr<GpuModule>> load_module(int device, const void* image) override;
  Result<SharedGpuMemory> share(int device, std::byte* base) override;
  Result<std::byte*> open(int device, const SharedGpuMemory& memory) override;
  bool close(int device, const SharedGpuMemory& memory) noexcept override;
  Status synchronize_operations(int device, std::byte* data) override;
  Result<DmaBuf> export_dma_buf(int device, std::byte* data, std::size_t size) override;
  Status flush_writes(int device) override;

 private:
  class Stream;
  struct Allocation {
    int device;
    std::size_t size;
    std::byte* backing;
    Fd fd;
  };
  const Allocation* allocation_of(const void* address, const std::byte** base) const;

  Options options_;
  std::vector<GpuDevice> devices_;
  std::map<std::byte*, Allocation> allocations_;  // by address
  int copies_ = 0;
  int flushes_ = 0;
  int exports_ = 0;
};

}  // namespace dunlin::testing
