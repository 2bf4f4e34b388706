// Windows: memory of the same size on every member of a communicator, known to all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transports/fabric.h"

namespace dunlin::collective {

// Members begin at different places within a page: streams to places that are whole pages apart
// hinder one another, manifold with streaming stores (bench/peers/all_reduce_limit).
inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kStagger = 2112;  // an odd number of cache lines

// Whether [data, data + size) is within `length` bytes from `begin`.
inline bool holds(const std::byte* begin, std::size_t length, const void* data, std::size_t size) {
  const auto* const at = static_cast<const std::byte*>(data);
  return at >= begin && at <= begin + length &&
         size <= length - static_cast<std::size_t>(at - begin);
}

struct Window {
  std::uint32_t id = 0;
  std::unique_ptr<transport::LocalRegion> memory;
  std::size_t size = 0;  // in bytes, as asked for
  int rank = 0;          // ours
  // Where a member's part begins in its region.
  static std::size_t base(int member) {
    return static_cast<std::size_t>(member) * kStagger % kPage;
  }
  std::byte* data() const { return memory->data() + base(rank); }
  std::vector<std::unique_ptr<transport::RemoteRegion>> remote;  // by member; null: not needed yet
};

// The windows of one communicator. Members allocate them in the same order. Owner thread only.
class Windows {
 public:
  Windows(transport::Fabric& fabric, std::string name, std::vector<Rank> members)
      : fabric_(fabric), name_(std::move(name)), members_(std::move(members)) {}

  // Allocates and publishes.
  Result<Window*> allocate(std::size_t size);
  // kInvalidArgument for memory that doesn't begin one.
  Status free(const void* data);
  // The one that holds [data, data + size); null: none does.
  Window* find(const void* data, std::size_t size) const;
  // Grows whenever what find() says may have changed.
  std::uint64_t version() const { return version_; }
  // Imports a member's end of the window, once. Blocks until it was published (config.deadline).
  Status import(Window& window, int member);

 private:
  std::string key(std::uint32_t id, Rank rank) const;

  transport::Fabric& fabric_;
  std::string name_;
  std::vector<Rank> members_;
  std::vector<std::unique_ptr<Window>> windows_;
  std::uint32_t next_id_ = 0;
  std::uint64_t version_ = 1;
};

}  // namespace dunlin::collective
