#include "collectives/communicator/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/communicator/offers.h"

namespace dunlin::collective {

Result<Window*> Windows::allocate(std::size_t size, Pages pages) {
  auto window = std::make_unique<Window>();
  window->id = next_id_++;
  if (size > std::numeric_limits<std::size_t>::max() - kPage)
    return Status(Code::kInvalidArgument, fmt::format("no memory has {} bytes", size));
  window->size = size;
  window->rank = static_cast<int>(std::ranges::find(members_, fabric_.rank()) - members_.begin());
  DUNLIN_ASSIGN(window->memory, allocate_region(size + kPage, pages));
  window->remote.resize(members_.size());
  window->offers.emplace(fabric_.bootstrap(),
                         fmt::format("communicator/{}/window {}", name_, window->id));
  const WindowOffer own{size, window->memory->descriptor()};
  DUNLIN_TRY(fabric_.bootstrap().publish(Bootstrap::key_of(window->offers->topic(), fabric_.rank()),
                                         own.encode()));
  windows_.push_back(std::move(window));
  ++version_;
  return windows_.back().get();
}

Result<std::unique_ptr<transport::LocalRegion>> Windows::allocate_region(std::size_t size,
                                                                         Pages pages) {
  return gpu_ == nullptr ? fabric_.allocate(size, DeviceOrder::kRelaxed, pages)
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
  for (auto window = windows_.rbegin(); window != windows_.rend(); ++window) release(**window);
}

void Windows::release(const Window& window) {
  fabric_.bootstrap().release(window.offers->topic(), members_.size());
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
  const TimePoint until = fabric_.clock().now() + timeout;
  const auto offered = window.offers->lookup(peer(member), timeout);
  if (!offered) return explain(offered.status()).with_peer(peer(member));
  auto theirs = WindowOffer::decode(*offered);
  if (!theirs) return std::move(theirs).status().with_peer(peer(member));
  if (theirs->size != window.size) {
    return Status(Code::kInvalidArgument,
                  fmt::format("communicator '{}': the member allocates {} bytes, this one {}",
                              name_, theirs->size, window.size))
        .with_peer(peer(member));
  }
  DUNLIN_TRY(fabric_.link(peer(member), fabric_.remaining(until)).status());
  DUNLIN_ASSIGN(auto imported, fabric_.import_region(peer(member), theirs->descriptor));
  // Mapped memory is accessed without further checks.
  if (imported->size() < window.size + kPage) {
    return Status(Code::kCorrupted,
                  fmt::format("communicator '{}': the member's region of {} bytes does not hold {}",
                              name_, imported->size(), window.size))
        .with_peer(peer(member));
  }
  remote = std::move(imported);
  window.offers->drop(peer(member));
  return Status::ok();
}

Status Windows::explain(Status error) const {
  return std::move(error).with_context(
      fmt::format("waiting for a member's memory of communicator '{}'", name_));
}

Status Windows::import(Window& window, std::span<const int> members, Duration timeout) {
  const auto is_imported = [&](int member) {
    return window.remote[static_cast<std::size_t>(member)] != nullptr;
  };
  if (std::ranges::all_of(members, is_imported)) return Status::ok();
  const TimePoint until = fabric_.clock().now() + timeout;
  DUNLIN_TRY(fetch(window, members, timeout));
  for (const int member : members) DUNLIN_TRY(import(window, member, fabric_.remaining(until)));
  return Status::ok();
}

Status Windows::fetch(Window& window, std::span<const int> members, Duration timeout) {
  std::vector<Rank> peers;
  for (const int member : members) {
    if (!window.remote[static_cast<std::size_t>(member)]) peers.push_back(peer(member));
  }
  const TimePoint until = fabric_.clock().now() + timeout;
  if (Status status = window.offers->fetch(peers, timeout); !status.is_ok())
    return explain(std::move(status));
  return fabric_.fetch_addresses(peers, fabric_.remaining(until));
}

}  // namespace dunlin::collective
