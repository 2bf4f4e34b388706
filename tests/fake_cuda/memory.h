// The memory of the stand-in's devices. An allocation is a memfd that is mapped twice. The caller
// gets the address of the first mapping, which allows no access, so that a program that follows it
// is killed, as on a host with a GPU. The stand-in itself uses the second mapping. Other processes
// open the memfd, as they open GPU memory through CUDA IPC. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/gpu/cuda_interface.h"

namespace dunlin::testing {

// Two mappings of one memfd.
class FakePages {
 public:
  // Takes over `fd`. If there is no memory, is_valid() is false.
  FakePages(int fd, std::size_t size);
  ~FakePages();
  FakePages(const FakePages&) = delete;
  FakePages& operator=(const FakePages&) = delete;

  bool is_valid() const { return address_ != nullptr && contents_ != nullptr; }
  int fd() const { return fd_; }
  std::byte* address() const { return address_; }
  std::byte* contents() const { return contents_; }
  std::size_t mapped() const { return mapped_; }

 private:
  int fd_;
  std::size_t mapped_;
  std::byte* address_;
  std::byte* contents_;
};

struct FakeAllocation {
  int device = 0;
  std::size_t size = 0;
  std::uint64_t buffer = 0;  // CU_POINTER_ATTRIBUTE_BUFFER_ID
  bool is_opened = false;    // memory of another process
  std::uint64_t key = 0;     // of opened memory: what it was opened by
  std::shared_ptr<FakePages> pages;
};

class FakeMemory {
 public:
  cuda::Code allocate(int device, std::size_t size, cuda::Address* address);
  cuda::Code free(cuda::Address address);
  cuda::Code share(cuda::Address address, cuda::IpcHandle* handle);
  cuda::Code open(int device, const cuda::IpcHandle& handle, cuda::Address* address);
  cuda::Code close(cuda::Address address);
  // The allocation that contains [address, address + size); without pages if there is none. Its
  // base is pages->address(). The pages stay while the caller holds them.
  FakeAllocation find(cuda::Address address, std::size_t size = 1);
  std::byte* contents(cuda::Address address, std::size_t size);
  int count(bool is_opened);

 private:
  std::mutex mutex_;
  std::map<cuda::Address, FakeAllocation> allocations_;  // by address
  std::uint64_t last_buffer_ = 0;
};

}  // namespace dunlin::testing
