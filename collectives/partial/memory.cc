#include "collectives/partial/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "collectives/communicator/window.h"

namespace dunlin::collective::partial {

std::size_t Memory::base(Rank rank) {
  return Window::base(rank.value());
}

Result<OwnWindow*> Memory::allocate(std::size_t size, Publish publish) {
  if (size > PTRDIFF_MAX - kPage) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}': {} bytes are more than there can be", name_, size));
  }
  // Memory of twice the size is not taken up by a small window.
  const auto idle = std::ranges::find_if(windows_, [size](const auto& window) {
    return is_idle(*window) && window->capacity >= size && window->capacity / 2 <= size;
  });
  if (idle != windows_.end()) {
    OwnWindow& again = **idle;
    again.size = size;
    again.is_freed = false;
    if (gpu_ == nullptr) std::memset(again.data(), 0, size);
    return &again;
  }
  auto window = std::make_unique<OwnWindow>();
  window->id = next_id_++;
  window->size = window->capacity = size;
  window->base = base(fabric_.rank());
  DUNLIN_ASSIGN(window->region, gpu_ == nullptr
                                    ? fabric_.allocate(size + kPage, DeviceOrder::kRelaxed)
                                    : fabric_.allocate_on_gpu(gpu_, device_, size + kPage));
  DUNLIN_TRY((fabric_.bootstrap().*publish)(key(fabric_.rank(), window->id),
                                            window->region->descriptor()));
  windows_.push_back(std::move(window));
  return windows_.back().get();
}

Status Memory::free(const void* data) {
  const auto found = std::ranges::find_if(
      windows_, [&](const auto& window) { return window->data() == data && !window->is_freed; });
  if (found == windows_.end())
    return {Code::kInvalidArgument, fmt::format("'{}' has not allocated this memory", name_)};
  if ((*found)->holds > 0) {
    free_later(**found);
  } else {
    windows_.erase(found);
  }
  return Status::ok();
}

void Memory::release(OwnWindow& window) {
  --window.holds;
  if (!is_idle(window)) return;
  const auto is_dispensable = [](const auto& each) { return each->id != 0 && is_idle(*each); };
  if (std::cmp_greater(std::ranges::count_if(windows_, is_dispensable), kMostIdle))
    windows_.erase(std::ranges::find_if(windows_, is_dispensable));
}

OwnWindow* Memory::find(const void* data, std::size_t size) const {
  for (const auto& window : windows_) {
    if (!window->is_freed && holds(window->data(), window->size, data, size)) return window.get();
  }
  return nullptr;
}

Result<std::unique_ptr<transport::RemoteRegion>> Memory::import(Rank peer, std::uint32_t id) {
  auto descriptor = fabric_.bootstrap().lookup_from(peer, key(peer, id), fabric_.config().deadline);
  if (!descriptor) {
    return std::move(descriptor)
        .status()
        .with_context(fmt::format("looking up window {} of a member of '{}'", id, name_))
        .with_peer(peer);
  }
  return fabric_.import_region(peer, *descriptor);
}

Status Memory::copy(std::byte* to, const std::byte* from, std::size_t size) const {
  if (size == 0) return Status::ok();
  if (gpu_ == nullptr) {
    std::memcpy(to, from, size);
    return Status::ok();
  }
  DUNLIN_ASSIGN(const auto stream, gpu_->create_stream(device_));
  DUNLIN_TRY(stream->copy_on_device(to, from, size));
  const TimePoint deadline = fabric_.clock().now() + fabric_.config().deadline;
  return await(*stream, fabric_.clock(), deadline, "a copy on a GPU");
}

std::string Memory::key(Rank rank, std::uint32_t id) const {
  return fmt::format("partial/{}/memory {}/{}", name_, id, rank.value());
}

}  // namespace dunlin::collective::partial
