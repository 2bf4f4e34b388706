// Memory of the stand-in's devices that a program puts together itself: handles of memory, which
// are memfds, are mapped to reserved addresses (CUDA's virtual memory management). A reservation is
// two ranges of addresses, as an allocation is two mappings (memory.h). Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/gpu/cuda_interface.h"

namespace dunlin::testing {

struct FakeAllocation;

class FakeRanges {
 public:
  cuda::Code create(cuda::MemoryHandle* handle, std::size_t size,
                    const cuda::MemoryProperties& properties);
  cuda::Code release(cuda::MemoryHandle handle);
  cuda::Code reserve(cuda::Address* address, std::size_t size);
  cuda::Code free(cuda::Address address, std::size_t size);
  cuda::Code map(cuda::Address address, std::size_t size, cuda::MemoryHandle handle);
  cuda::Code unmap(cuda::Address address, std::size_t size);
  cuda::Code set_access(cuda::Address address, std::size_t size, const cuda::MemoryAccess& access);
  // The handle that is mapped at the address.
  cuda::Code retain(cuda::MemoryHandle* handle, cuda::Address address);
  cuda::Code describe(cuda::MemoryProperties* properties, cuda::MemoryHandle handle);
  cuda::Code share(int* fd, cuda::MemoryHandle handle);
  cuda::Code open(cuda::MemoryHandle* handle, int fd);

  // The piece that contains `address`, if all of [address, address + size) is mapped and
  // accessible.
  FakeAllocation find(cuda::Address address, std::size_t size);
  // Handles and reservations that exist.
  int count();

 private:
  struct Handle {
    cuda::MemoryProperties properties;
    std::size_t size = 0;
    int fd = -1;
    int uses = 1;  // references and mappings
  };
  struct Piece {
    std::size_t size = 0;
    cuda::MemoryHandle handle = 0;
    std::uint64_t buffer = 0;
    bool is_accessible = false;
  };
  struct Range;  // of reserved addresses
  Handle* handle_of(cuda::MemoryHandle handle);
  void drop(cuda::MemoryHandle handle);
  std::shared_ptr<Range> range_of(cuda::Address address, std::size_t size);
  cuda::MemoryHandle add(Handle handle);

  std::mutex mutex_;
  std::map<cuda::MemoryHandle, Handle> handles_;
  std::map<cuda::Address, std::shared_ptr<Range>> ranges_;  // by address
  cuda::MemoryHandle last_handle_ = 0;
  std::uint64_t last_buffer_ = std::uint64_t{1} << 32;  // beyond those of allocations
};

}  // namespace dunlin::testing
