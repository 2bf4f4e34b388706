// LocalSlice and RemoteSlice: the only things that a lane moves bytes between.
//
// A LocalRegion is memory of this process, registered with every transport in use. Its descriptor,
// carried to a peer by whatever means, becomes a RemoteRegion there. Slices are made from regions
// by slice(), which checks the bounds, in release builds too, so that a lane need not check again.
// Slices are borrowed: the region has to outlive the operation's completion.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/bytes.h"
#include "runtime/memory/region.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::transport {

class Link;

// What one transport holds for a registered region (a memory handle, a local key); unregisters when
// it goes. Peers that still put there get an error, and never reach memory that is used otherwise.
class TransportRegion {
 public:
  virtual ~TransportRegion() = default;
  // Of the transport, whose peers understand the descriptor.
  virtual std::string_view transport() const = 0;
  // What a peer's transport of the same name needs to reach the region.
  virtual Bytes descriptor() const = 0;
};

class LocalRegion;

class LocalSlice {
 public:
  LocalSlice() = default;  // empty: 0 bytes of nothing
  const LocalRegion* region() const { return region_; }
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // A part of this slice; kOutOfRange beyond it.
  Result<LocalSlice> slice(std::size_t offset, std::size_t size) const;

 private:
  friend class LocalRegion;
  LocalSlice(const LocalRegion* region, std::byte* data, std::size_t size)
      : region_(region), data_(data), size_(size) {}
  const LocalRegion* region_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Made by Fabric::register_memory. Owner thread only.
class LocalRegion {
 public:
  // `transports[i]`: the region as the fabric's i-th transport holds it; null where that transport
  // can't reach memory of this kind.
  LocalRegion(std::shared_ptr<MemoryRegion> memory,
              std::vector<std::unique_ptr<TransportRegion>> transports)
      : memory_(std::move(memory)), transports_(std::move(transports)) {}

  std::byte* data() const { return memory_->data(); }
  std::size_t size() const { return memory_->size(); }
  const std::shared_ptr<MemoryRegion>& memory() const { return memory_; }
  Result<LocalSlice> slice(std::size_t offset, std::size_t size) const;
  LocalSlice whole() const { return {this, data(), size()}; }
  // For Fabric::import_region at a peer.
  Bytes descriptor() const;
  // For transports: their own part, by their index in the fabric.
  const TransportRegion* at(std::size_t transport) const { return transports_[transport].get(); }

 private:
  std::shared_ptr<MemoryRegion> memory_;
  std::vector<std::unique_ptr<TransportRegion>> transports_;
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

// A peer's region as this process reaches it, over the one link that it was imported through; that
// link has to outlive it. Transports derive from it. Owner thread only.
class RemoteRegion {
 public:
  RemoteRegion(const Link& link, std::size_t size) : link_(&link), size_(size) {}
  virtual ~RemoteRegion() = default;
  RemoteRegion(const RemoteRegion&) = delete;
  RemoteRegion& operator=(const RemoteRegion&) = delete;

  const Link& link() const { return *link_; }
  std::size_t size() const { return size_; }
  // Where this process has the region mapped; null: it can be reached by operations only. Loads and
  // stores there are the caller's to order: a store is seen before a later notification to the
  // peer.
  virtual std::byte* mapped() const { return nullptr; }
  Result<RemoteSlice> slice(std::size_t offset, std::size_t size) const;
  RemoteSlice whole() const { return {this, 0, size_}; }

 private:
  const Link* link_;
  std::size_t size_;
};

}  // namespace dunlin::transport
