// Regions of the ucx transport: the table of this process's regions, which arriving messages are
// checked against, and a peer's region as its descriptor describes it.
//
// A region's number is never reused, so a message for a region that is gone cannot be taken for a
// message for a later one. Memory that was exposed to RMA stays mapped, in quarantine, until the
// transport is destroyed, because writes in flight cannot be stopped.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transports/imports.h"
#include "transports/transport.h"
#include "transports/ucx/handle.h"
#include "transports/ucx/wire.h"

namespace dunlin::transport::ucx {

class Connection;
class Engine;

// Memory that UCX has mapped. The handle is destroyed before the memory.
struct MappedMemory {
  std::shared_ptr<MemoryRegion> memory;
  std::shared_ptr<const MemoryHandle> handle;
};

class RegionTable {
 public:
  struct Entry {
    std::shared_ptr<MemoryRegion> memory;
    // True if `memory` keeps the bytes alive, so that UCX may write to them later. The caller may
    // free memory that it wrapped once the region is deregistered; such memory is written at once
    // or never.
    bool is_kept = false;
  };

  std::uint64_t add(std::shared_ptr<MemoryRegion> memory);
  void remove(std::uint64_t id) { entries_.erase(id); }
  void quarantine(MappedMemory mapped) { quarantine_.push_back(std::move(mapped)); }
  const Entry* find(std::uint64_t id) const;
  // Whether this number was ever given to a region.
  bool has_known(std::uint64_t id) const { return id != 0 && id < next_id_; }

 private:
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::vector<MappedMemory> quarantine_;
  std::uint64_t next_id_ = 1;
};

class UcxRegion final : public TransportRegion {
 public:
  static Result<std::unique_ptr<TransportRegion>> create(Engine& engine,
                                                         std::shared_ptr<MemoryRegion> memory);
  ~UcxRegion() override;
  std::string_view transport() const override { return "ucx"; }
  Bytes descriptor() const override;
  const MappedMemory& mapped() const { return mapped_; }

 private:
  UcxRegion(Engine& engine, MappedMemory mapped, Bytes key);
  Engine& engine_;
  MappedMemory mapped_;
  Bytes key_;  // empty if the region is not exposed to RMA
  std::uint64_t id_;
  bool is_kept_;
};

class UcxRemoteRegion final : public ImportedRegion {
 public:
  static Result<std::unique_ptr<RemoteRegion>> import(const Link& link, Connection& connection,
                                                      std::span<const std::byte> descriptor,
                                                      std::size_t size);

  std::uint64_t address() const { return address_; }
  // Whether the peer may fetch a put's bytes after the message that announces them.
  bool is_kept() const { return is_kept_; }
  // Null if the region cannot be accessed by RMA over this lane.
  const RemoteKey* key(LaneKind lane) const { return keys_[index_of(lane)].get(); }

 private:
  using ImportedRegion::ImportedRegion;
  std::uint64_t address_ = 0;
  bool is_kept_ = false;
  std::unique_ptr<RemoteKey> keys_[kLaneKinds];
};

}  // namespace dunlin::transport::ucx
