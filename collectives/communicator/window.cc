#include "collectives/communicator/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

namespace dunlin::collective {

Result<Window*> Windows::allocate(std::size_t size) {
  auto window = std::make_unique<Window>();
  window->id = next_id_++;
  window->size = size;
  window->rank = static_cast<int>(std::ranges::find(members_, fabric_.rank()) - members_.begin());
  DUNLIN_ASSIGN(window->memory, allocate_region(size + kPage));
  window->remote.resize(members_.size());
  ByteWriter writer;
  writer.number(static_cast<std::uint64_t>(size)).blob(window->memory->descriptor());
  DUNLIN_TRY(fabric_.bootstrap().publish(Bootstrap::key_of(topic(*window), fabric_.rank()),
                                         writer.take()));
  windows_.push_back(std::move(window));
  ++version_;
  return windows_.back().get();
}

Result<std::unique_ptr<transport::LocalRegion>> Windows::allocate_region(std::size_t size) {
  return gpu_ == nullptr ? fabric_.allocate(size, DeviceOrder::kRelaxed)
                         : fabric_.allocate_on_gpu(gpu_, device_, size);
}

Status Windows::free(const void* data) {
  const auto found =
      std::ranges::find_if(windows_, [&](const auto& window) { return window->data() == data; });
  if (found == windows_.end())
    return {Code::kInvalidArgument,
            fmt::format("communicator '{}' did not allocate this memory", name_)};
  release(**found);
  windows_.erase(found);
  ++version_;
  return Status::ok();
}

Windows::~Windows() {
  // The scratch, by which members find out that a name is taken, comes last.
  for (const auto& window : std::views::reverse(windows_)) release(*window);
}

void Windows::release(const Window& window) {
  fabric_.bootstrap().release(topic(window), members_.size());
}

Window* Windows::find(const void* data, std::size_t size) const {
  for (const auto& window : windows_) {
    if (holds(window->data(), window->size, data, size)) return window.get();
  }
  return nullptr;
}

Status Windows::import(Window& window, int member, Duration timeout) {
  auto& remote = window.remote[static_cast<std::size_t>(member)];
  if (remote) return Status::ok();
  const Rank peer = members_[static_cast<std::size_t>(member)];
  const TimePoint until = fabric_.clock().now() + timeout;
  auto offer =
      fabric_.bootstrap().lookup_from(peer, Bootstrap::key_of(topic(window), peer), timeout);
  if (!offer) {
    return std::move(offer)
        .status()
        .with_context(fmt::format("waiting for a member's memory of communicator '{}'", name_))
        .with_peer(peer);
  }
  ByteReader reader(*offer);
  const auto size = reader.number<std::uint64_t>();
  const auto descriptor = reader.blob();
  if (!reader.at_end() || size != window.size) {
    return Status(Code::kInvalidArgument,
                  fmt::format("communicator '{}': the member allocates {} bytes, this one {}",
                              name_, size, window.size))
        .with_peer(peer);
  }
  const Duration left = std::max(until - fabric_.clock().now(), Duration::zero());
  DUNLIN_TRY(fabric_.link(peer, left).status());
  DUNLIN_ASSIGN(remote, fabric_.import_region(peer, descriptor));
  return Status::ok();
}

std::string Windows::topic(const Window& window) const {
  return fmt::format("communicator/{}/window {}", name_, window.id);
}

}  // namespace dunlin::collective
