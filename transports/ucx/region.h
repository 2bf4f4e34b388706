// Regions of the ucx transport: the table of ours, by which arriving messages are checked, and a
// peer's as its descriptor tells it.
//
// A region's number is never used twice, so that a message for a region that is gone can't be taken
// for one that came after. Memory that was exposed to RMA stays mapped, in quarantine, until the
// transport goes: a write that is already on the wire asks nobody.
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

// Memory that UCX has mapped. The handle goes first.
struct MappedMemory {
  std::shared_ptr<MemoryRegion> memory;
  std::shared_ptr<const MemoryHandle> handle;
};

class RegionTable {
 public:
  struct Entry {
    std::shared_ptr<MemoryRegion> memory;
    // The memory lives as long as somebody holds it, so that UCX may write to it later. Memory that
    // a caller wrapped is his to free once the region is unregistered: it is written at once or
    // never.
    bool is_kept = false;
  };

  std::uint64_t add(std::shared_ptr<MemoryRegion> memory);
  void remove(std::uint64_t id) { entries_.erase(id); }
  void quarantine(MappedMemory mapped) { quarantine_.push_back(std::move(mapped)); }
  const Entry* find(std::uint64_t id) const;
  // Whether a region ever had this number.
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
  Bytes key_;  // empty: not exposed to RMA
  std::uint64_t id_;
  bool is_kept_;
};

class UcxRemoteRegion final : public ImportedRegion {
 public:
  static Result<std::unique_ptr<RemoteRegion>> import(const Link& link, Connection& connection,
                                                      std::span<const std::byte> descriptor,
                                                      std::size_t size);

  std::uint64_t address() const { return address_; }
  // UCX may fetch a put's bytes after the message that announces it.
  bool is_kept() const { return is_kept_; }
  // Null: not reachable by RMA over this lane.
  const RemoteKey* key(LaneKind lane) const { return keys_[index_of(lane)].get(); }

 private:
  using ImportedRegion::ImportedRegion;
  std::uint64_t address_ = 0;
  bool is_kept_ = false;
  std::unique_ptr<RemoteKey> keys_[kLaneKinds];
};

}  // namespace dunlin::transport::ucx
