// LocalSlice and RemoteSlice: lanes move bytes between a slice here and a slice at a peer.
//
// A LocalRegion is memory of this process that is registered with the transports of its fabric. Its
// descriptor is sent to a peer by any means; Fabric::import_region() makes a RemoteRegion of it
// there. Regions are divided into slices by slice(), which checks the bounds in release builds too,
// so lanes do not check them again. A slice refers to its region, which must outlive the completion
// of every operation on the slice.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bytes.h"
#include "runtime/memory/region.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::transport {

class Link;

// What one transport holds for a registered region, such as a memory handle or a local key. The
// destructor deregisters the memory. A later put of a peer fails, or lands in memory that is no
// longer used; it never reaches memory that has been reused.
class TransportRegion {
 public:
  virtual ~TransportRegion() = default;
  // The name of the transport.
  virtual std::string_view transport() const = 0;
  // What a peer's transport of the same name needs to access the region.
  virtual Bytes descriptor() const = 0;
};

class LocalRegion;

class LocalSlice {
 public:
  LocalSlice() = default;  // an empty slice without a region
  const LocalRegion* region() const { return region_; }
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // A part of this slice. kOutOfRange if it does not lie within this slice.
  Result<LocalSlice> slice(std::size_t offset, std::size_t size) const;

 private:
  friend class LocalRegion;
  LocalSlice(const LocalRegion* region, std::byte* data, std::size_t size)
      : region_(region), data_(data), size_(size) {}
  const LocalRegion* region_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Registered memory of this process, made by Fabric::register_memory(). Owner thread only.
class LocalRegion {
 public:
  // `transports[i]` is what the fabric's i-th transport holds for the region. It is null if that
  // transport could not register the memory; `refusals` says why, and peers will tell.
  LocalRegion(std::shared_ptr<MemoryRegion> memory,
              std::vector<std::unique_ptr<TransportRegion>> transports, std::string refusals = {})
      : memory_(std::move(memory)),
        transports_(std::move(transports)),
        refusals_(std::move(refusals)) {}

  std::byte* data() const { return memory_->data(); }
  std::size_t size() const { return memory_->size(); }
  const std::shared_ptr<MemoryRegion>& memory() const { return memory_; }
  Result<LocalSlice> slice(std::size_t offset, std::size_t size) const;
  LocalSlice whole() const { return {this, data(), size()}; }
  // What a peer hands to Fabric::import_region() to access this region.
  Bytes descriptor() const;
  // What the transport with this index in the fabric holds for the region. Transports call this.
  const TransportRegion* at(std::size_t transport) const { return transports_[transport].get(); }

 private:
  std::shared_ptr<MemoryRegion> memory_;
  std::vector<std::unique_ptr<TransportRegion>> transports_;
  std::string refusals_;
};

class RemoteRegion;

class RemoteSlice {
 public:
  RemoteSlice() = default;
  const RemoteRegion* region() const { return region_; }
  std::size_t offset() const { return offset_; }
  std::size_t size() const { return size_; }
  Result<RemoteSlice> slice(std::size_t offset, std::size_t size) const;

 private:
  friend class RemoteRegion;
  RemoteSlice(const RemoteRegion* region, std::size_t offset, std::size_t size)
      : region_(region), offset_(offset), size_(size) {}
  const RemoteRegion* region_ = nullptr;
  std::size_t offset_ = 0;
  std::size_t size_ = 0;
};

// A peer's region, accessed through the link that it was imported through, which must outlive it.
// Transports derive their own classes from it. Owner thread only.
class RemoteRegion {
 public:
  RemoteRegion(const Link& link, std::size_t size) : link_(&link), size_(size) {}
  virtual ~RemoteRegion() = default;
  RemoteRegion(const RemoteRegion&) = delete;
  RemoteRegion& operator=(const RemoteRegion&) = delete;

  const Link& link() const { return *link_; }
  std::size_t size() const { return size_; }
  // The address at which this process has the region mapped, or null if only a lane's operations
  // can access it. The caller orders its own loads and stores there; the peer sees a store before a
  // notification that is posted after it.
  virtual std::byte* mapped() const { return nullptr; }
  // The same for GPU memory: the address at which kernels of the GPU `device` of this process can
  // access it; null if they cannot. The CPU cannot access it there.
  virtual std::byte* gpu_mapped([[maybe_unused]] int device) const { return nullptr; }
  Result<RemoteSlice> slice(std::size_t offset, std::size_t size) const;
  RemoteSlice whole() const { return {this, 0, size_}; }

 private:
  const Link* link_;
  std::size_t size_;
};

}  // namespace dunlin::transport
