// FakeGpu: a GpuDriver without a GPU, which can be told to lack each ability.
//
// Its memory is the host's, mapped twice: at the addresses that it hands out nobody may look, as
// with a GPU's (a process that follows one dies, and the kernel refuses to register them), unless
// the options say that devices may; the driver's copies go by the other mapping. A copy happens
// when the stream has been asked often enough whether it has, not before, so that who doesn't wait
// finds the old bytes. One thread.
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
    Status copying;        // as poll() reports it
    // Its addresses can be registered by who registers the host's, until hide() is called.
    bool is_registrable = false;
    int polls_per_copy = 3;  // -1: never done
  };

  explicit FakeGpu(Options options);
  FakeGpu() : FakeGpu(Options{}) {}
  ~FakeGpu() override;
  FakeGpu(const FakeGpu&) = delete;
  FakeGpu& operator=(const FakeGpu&) = delete;

  // What is in the memory, for tests.
  std::span<std::byte> contents(const void* data, std::size_t size);
  // From now on, nobody may look at the addresses of what is allocated.
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
  Result<std::unique_ptr<GpuStream>> create_stream(int device) override;
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
