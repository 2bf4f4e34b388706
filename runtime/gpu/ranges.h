// GpuRanges: an ability of a GpuDriver, to share memory that consists of pieces of its own
// addresses (CUDA's virtual memory management: what cuMemCreate makes and cuMemMap puts together,
// as PyTorch's expandable segments). Such memory travels as file descriptors, one for each piece.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/fd.h"
#include "runtime/gpu/driver.h"

namespace dunlin {

// A range of memory, as the whole pieces that contain it, in the order of their addresses. Other
// processes get duplicates of the descriptors (opening them anew through /proc does not do). The
// memory of the pieces exists as long as any descriptor or mapping of it does.
struct ExportedGpuRange {
  std::string pci_bus_id;    // of the device
  std::uint64_t offset = 0;  // of the range in the first piece
  std::vector<Fd> descriptors;
  std::vector<std::uint64_t> sizes;  // of the pieces
};

// Pieces that are mapped one after another. Unmaps them in the end; no work may access them then.
class MappedGpuRange {
 public:
  virtual ~MappedGpuRange() = default;
  virtual std::byte* data() const = 0;
};

class GpuRanges {
 public:
  virtual ~GpuRanges() = default;
  // Returns kUnavailable, with what to do, for memory of other kinds, for pieces that were made
  // without a handle for other processes, and for drivers before CUDA 11. Pieces have to be mapped
  // as a whole.
  virtual Result<ExportedGpuRange> export_range(int device, std::byte* data, std::size_t size) = 0;
  // The device is the one that the memory belongs to. Work of it can access the result. Maps memory
  // of this process a second time. kNotFound: a descriptor is none of such memory.
  virtual Result<std::unique_ptr<MappedGpuRange>> map_range(
      int device, std::span<const Fd> descriptors, std::span<const std::uint64_t> sizes) = 0;

  // Null for a driver without this ability.
  static GpuRanges* of(GpuDriver& driver) { return dynamic_cast<GpuRanges*>(&driver); }
};

}  // namespace dunlin
