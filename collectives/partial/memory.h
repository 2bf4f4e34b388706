// Memory: the windows of one rank. A window is memory that peers can reach, and have mapped on the
// same host. Each rank allocates on its own. A peer learns the number of a window in the operation
// that uses it, and looks the rest up at the bootstrap, once. Owner thread only.
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
  std::size_t size = 0;  // in bytes, as requested
  std::size_t base = 0;  // its offset in the region
  // Members of a failed operation may still write to it, so it is kept to the end.
  bool is_tainted = false;
  bool is_freed = false;

  std::byte* data() const { return region->data() + base; }
};

class Memory {
 public:
  Memory(transport::Fabric& fabric, std::string name) : fabric_(fabric), name_(std::move(name)) {}

  // The offset of a rank's windows in their regions. It differs from rank to rank within a page
  // (communicator/window.h says why).
  static std::size_t base(Rank rank);
  // Allocates a zeroed window and publishes it.
  Result<OwnWindow*> allocate(std::size_t size);
  // kInvalidArgument for memory that is not the beginning of a window.
  Status free(const void* data);
  // The window that contains [data, data + size), or null.
  OwnWindow* find(const void* data, std::size_t size) const;
  // Imports a window of a peer, which has to be published.
  Result<std::unique_ptr<transport::RemoteRegion>> import(Rank peer, std::uint32_t id);

 private:
  std::string key(Rank rank, std::uint32_t id) const;

  transport::Fabric& fabric_;
  std::string name_;
  std::vector<std::unique_ptr<OwnWindow>> windows_;
  std::uint32_t next_id_ = 0;
};

}  // namespace dunlin::collective::partial
