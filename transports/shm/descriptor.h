// ShmDescriptor: how a peer on this host reaches a region (region.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "runtime/bytes.h"
#include "runtime/gpu/driver.h"
#include "runtime/status.h"

namespace dunlin::transport::shm {

// Memory in a file that is open at the owner.
struct FileMemory {
  std::int32_t fd = -1;  // -1: peers cannot access the memory
  std::uint64_t inode = 0;
  std::uint64_t offset = 0;
};
// A part of an allocation on a GPU that the driver shares.
struct AllocatedGpuMemory {
  SharedGpuMemory allocation;
  std::uint64_t offset = 0;
  bool is_owned = false;  // Dunlin has allocated it, and its owner waits for peers that have it
};
// A part of a range on a GPU that consists of pieces (runtime/gpu/ranges.h).
struct GpuPieces {
  struct Piece {
    std::int32_t fd = -1;  // at the owner
    std::uint64_t size = 0;
  };
  std::string pci_bus_id;
  std::uint64_t offset = 0;
  std::vector<Piece> pieces;
};
// Memory on a GPU that the driver does not share.
struct UnsharedMemory {
  std::string why;
};
// Memory that Dunlin has not allocated, which peers access by system calls.
struct PrivateMemory {
  std::uint64_t address = 0;
};

struct ShmDescriptor {
  std::uint32_t place = 0;       // in the owner's table of generations (segment.h)
  std::uint64_t generation = 0;  // at least 1
  std::variant<FileMemory, AllocatedGpuMemory, GpuPieces, UnsharedMemory, PrivateMemory> memory;

  Bytes encode() const;
  // kCorrupted if the bytes are malformed, or the region, which has `size` bytes, does not lie
  // within its memory on a GPU or within the owner's address space. Whether it lies within its file
  // is not known here.
  static Result<ShmDescriptor> decode(std::span<const std::byte> bytes, std::uint64_t size);
};

}  // namespace dunlin::transport::shm
