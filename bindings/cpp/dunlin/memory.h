// Memory and RemoteMemory: what the one-sided operations of lanes (lane.h) and queues (queue.h)
// move bytes between.
//
//   DUNLIN_ASSIGN(auto memory, dunlin::Memory::allocate(job, 4096));
//   DUNLIN_TRY(memory.share("inbox"));                                  // on the owner
//   DUNLIN_ASSIGN(auto inbox, dunlin::RemoteMemory::open(job, peer, "inbox", timeout));
//
// Registration is expensive: register once, then use slices. Bounds are checked when a slice is
// made. A slice refers to its memory, which has to outlive every operation on the slice.
//
// Collectives don't need these classes: they take any memory, and they use memory from their own
// allocate() without copying. Owner thread of the job only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include <dunlin/job.h>

namespace dunlin {

// A part of a Memory.
class MemorySlice {
 public:
  MemorySlice() = default;  // empty
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // A part of this slice; kOutOfRange beyond its end.
  Result<MemorySlice> slice(std::size_t offset, std::size_t size) const;

 private:
  friend struct Internal;
  const void* region_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A part of a RemoteMemory.
class RemoteMemorySlice {
 public:
  RemoteMemorySlice() = default;  // empty
  std::size_t offset() const { return offset_; }
  std::size_t size() const { return size_; }
  // A part of this slice; kOutOfRange beyond its end.
  Result<RemoteMemorySlice> slice(std::size_t offset, std::size_t size) const;

 private:
  friend struct Internal;
  const void* region_ = nullptr;
  std::size_t offset_ = 0;
  std::size_t size_ = 0;
};

// Memory of this process, registered with every transport in use. Destroying it deregisters it, and
// later operations of peers fail. A put that is in progress then never reaches memory from
// allocate() that is used for something else. Over shared memory, it may still land in memory from
// wrap(): make sure that peers are done before you use that for something else.
class Memory {
 public:
  // Allocates at least `size` bytes of zeroed, page-aligned memory, local to the thread's NUMA
  // node. Peers on this host can map it.
  static Result<Memory> allocate(Job& job, std::size_t size);
  // Registers the caller's own host memory, which has to outlive this object. Peers can't map it;
  // those on this host access it by system calls, where the kernel permits it, and have no atomics
  // on it.
  static Result<Memory> wrap(Job& job, void* data, std::size_t size);
  // Registers the caller's own GPU memory (CUDA). Returns kUnavailable without a driver. The host
  // must not dereference its addresses. Transports that can't access the memory return an error
  // when it is used.
  static Result<Memory> wrap_gpu(Job& job, void* data, std::size_t size);

  Memory(Memory&&) noexcept;
  Memory& operator=(Memory&&) noexcept;
  ~Memory();

  std::byte* data() const;
  std::size_t size() const;
  std::span<std::byte> bytes() const { return {data(), size()}; }
  // The memory as an array of T; a rest that is smaller than T is left out.
  template <typename T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data()), size() / sizeof(T)};
  }
  Result<MemorySlice> slice(std::size_t offset, std::size_t size) const;
  MemorySlice whole() const;

  // Lets every rank open this memory under a name. A rank shares a name once.
  Status share(std::string_view name) const;
  // What a peer needs for RemoteMemory::import(), for programs that pass it on by themselves.
  Bytes descriptor() const;

 private:
  friend struct Internal;
  struct Impl;
  explicit Memory(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A peer's memory, for the operations of this rank.
class RemoteMemory {
 public:
  // Waits until the peer has shared this name. Connects to the peer if need be.
  static Result<RemoteMemory> open(Job& job, Rank peer, std::string_view name, Duration timeout);
  // `descriptor` is what the peer's Memory::descriptor() returned.
  static Result<RemoteMemory> import(Job& job, Rank peer, std::span<const std::byte> descriptor);

  RemoteMemory(RemoteMemory&&) noexcept;
  RemoteMemory& operator=(RemoteMemory&&) noexcept;
  ~RemoteMemory();

  Rank peer() const;
  std::size_t size() const;
  Result<RemoteMemorySlice> slice(std::size_t offset, std::size_t size) const;
  RemoteMemorySlice whole() const;
  // Returns the address at which this process has the memory mapped, or null if only operations can
  // access it. The caller orders its own loads and stores there. A store is visible to the peer
  // before a later notification.
  std::byte* mapped() const;

 private:
  friend struct Internal;
  struct Impl;
  explicit RemoteMemory(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin
