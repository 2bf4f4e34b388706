// Memory: the windows of one rank, memory that its peers can reach and, on this host, have mapped.
// Ranks allocate as they like: who is to reach a window learns its number in an operation, and the
// rest from the bootstrap, once. Owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transports/fabric.h"

namespace dunlin::collective::partial {

struct OwnWindow {
  std::uint32_t id = 0;
  std::unique_ptr<transport::LocalRegion> region;
  std::size_t size = 0;  // in bytes, as asked for
  std::size_t base = 0;  // where it begins in the region
  // Members of an operation that was given up may still write to it: it stays until the end.
  bool is_tainted = false;
  bool is_freed = false;

  std::byte* data() const { return region->data() + base; }
};

class Memory {
 public:
  Memory(transport::Fabric& fabric, std::string name) : fabric_(fabric), name_(std::move(name)) {}

  // Where windows of this rank begin in their regions: different ranks' at different places within
  // a page (communicator/window.h says why).
  static std::size_t base(Rank rank);
  // Zeroed, and published.
  Result<OwnWindow*> allocate(std::size_t size);
  // kInvalidArgument for memory that doesn't begin a window.
  Status free(const void* data);
  // The window that holds [data, data + size); null: none does.
  OwnWindow* find(const void* data, std::size_t size) const;
  // A window of a peer; it has to be published.
  Result<std::unique_ptr<transport::RemoteRegion>> import(Rank peer, std::uint32_t id);

 private:
  std::string key(Rank rank, std::uint32_t id) const;

  transport::Fabric& fabric_;
  std::string name_;
  std::vector<std::unique_ptr<OwnWindow>> windows_;
  std::uint32_t next_id_ = 0;
};

}  // namespace dunlin::collective::partial
