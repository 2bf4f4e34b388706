// Regions of the tcp transport: the table of this process's regions, which arriving messages are
// checked against, and a peer's region as its descriptor describes it. A region's number is never
// reused, so a message for a region that is gone cannot be taken for one for a later region.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "transports/imports.h"
#include "transports/transport.h"

namespace dunlin::transport::tcp {

class Engine;

class RegionTable {
 public:
  std::uint64_t add(std::shared_ptr<MemoryRegion> memory);
  void remove(std::uint64_t id) { regions_.erase(id); }
  // The bytes [offset, offset + size) of a region, or why they do not exist: kNotFound or
  // kOutOfRange.
  struct Found {
    Code code = Code::kOk;
    std::byte* data = nullptr;
  };
  Found find(std::uint64_t id, std::uint64_t offset, std::uint64_t size) const;
  // Whether this number was ever given to a region.
  bool has_known(std::uint64_t id) const { return id != 0 && id < next_id_; }

 private:
  std::unordered_map<std::uint64_t, std::shared_ptr<MemoryRegion>> regions_;
  std::uint64_t next_id_ = 1;
};

class TcpRegion final : public TransportRegion {
 public:
  // kUnavailable unless it is host memory.
  static Result<std::unique_ptr<TransportRegion>> create(Engine& engine,
                                                         std::shared_ptr<MemoryRegion> memory);
  TcpRegion(Engine& engine, std::uint64_t id) : engine_(engine), id_(id) {}
  ~TcpRegion() override;
  std::string_view transport() const override { return "tcp"; }
  Bytes descriptor() const override;

 private:
  Engine& engine_;
  std::uint64_t id_;
};

class TcpRemoteRegion final : public ImportedRegion {
 public:
  static Result<std::unique_ptr<RemoteRegion>> import(const Link& link, Imports& imports,
                                                      std::span<const std::byte> descriptor,
                                                      std::size_t size);

 private:
  using ImportedRegion::ImportedRegion;
};

}  // namespace dunlin::transport::tcp
