// The memory of the stand-in's devices. An allocation is a memfd that is mapped twice. The caller
// gets the address of the first mapping, which allows no access, so that a program that follows it
// is killed, as on a host with a GPU. The stand-in itself uses the second mapping. Other processes
// open the memfd, as they open GPU memory through CUDA IPC, and enter themselves in a page behind
// the data, so that the owner finds out when it frees memory that others have open. Any thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/gpu/cuda_interface.h"
#include "tests/fake_cuda/ranges.h"

namespace dunlin::testing {

// The page behind the data, of which only the second mapping has one.
struct FakeOpeners {
  std::array<std::atomic<pid_t>, 256> processes;  // that have the memory open; 0: a free entry

  void enter();
  void leave();
  // Whether a process that lives has the memory open.
  bool has_any() const;
};

// Two mappings of one memfd.
class FakePages {
 public:
  // Takes over `fd`. If there is no memory, is_valid() is false.
  FakePages(int fd, std::size_t size);
  // Mappings of others, which `owner` keeps.
  FakePages(std::byte* address, std::byte* contents, std::shared_ptr<void> owner)
      : fd_(-1), mapped_(0), address_(address), contents_(contents), owner_(std::move(owner)) {}
  ~FakePages();
  FakePages(const FakePages&) = delete;
  FakePages& operator=(const FakePages&) = delete;

  bool is_valid() const { return address_ != nullptr && contents_ != nullptr; }
  int fd() const { return fd_; }
  std::byte* address() const { return address_; }
  std::byte* contents() const { return contents_; }
  FakeOpeners& openers() const { return *reinterpret_cast<FakeOpeners*>(contents_ + mapped_); }

 private:
  int fd_;
  std::size_t mapped_;
  std::byte* address_;
  std::byte* contents_;
  std::shared_ptr<void> owner_;
};

struct FakeAllocation {
  int device = 0;
  std::size_t size = 0;
  std::uint64_t buffer = 0;  // CU_POINTER_ATTRIBUTE_BUFFER_ID
  bool is_opened = false;    // memory of another process
  bool is_virtual = false;   // a piece of a range (ranges.h)
  std::uint64_t key = 0;     // of opened memory: what it was opened by
  std::shared_ptr<FakePages> pages;
};

class FakeMemory {
 public:
  cuda::Code allocate(int device, std::size_t size, cuda::Address* address);
  // Sets `was_open` if another process has the memory open.
  cuda::Code free(cuda::Address address, bool* was_open);
  cuda::Code share(cuda::Address address, cuda::IpcHandle* handle);
  cuda::Code open(int device, const cuda::IpcHandle& handle, cuda::Address* address);
  cuda::Code close(cuda::Address address);
  // The allocation that contains [address, address + size); without pages if there is none. Its
  // base is pages->address(). The pages stay while the caller holds them.
  FakeAllocation find(cuda::Address address, std::size_t size = 1);
  std::byte* contents(cuda::Address address, std::size_t size);
  int count(bool is_opened);
  void write_off();
  // How many allocations of this process have this size.
  int count_of(std::size_t size);
  FakeRanges& ranges() { return ranges_; }

 private:
  std::mutex mutex_;
  std::map<cuda::Address, FakeAllocation> allocations_;  // by address
  std::uint64_t last_buffer_ = 0;
  FakeRanges ranges_;
};

}  // namespace dunlin::testing
