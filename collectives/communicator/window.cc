#include "collectives/communicator/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "collectives/communicator/offers.h"

namespace dunlin::collective {

Result<Window*> Windows::allocate(std::size_t size) {
  auto window = std::make_unique<Window>();
  window->id = next_id_++;
  window->size = size;
  window->rank = static_cast<int>(std::ranges::find(members_, fabric_.rank()) - members_.begin());
  DUNLIN_ASSIGN(window->memory, allocate_region(size + kPage));
  window->remote.resize(members_.size());
  const WindowOffer own{size, window->memory->descriptor()};
  DUNLIN_TRY(
      fabric_.bootstrap().publish(Bootstrap::key_of(topic(*window), fabric_.rank()), own.encode()));
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
  const TimePoint until = fabric_.clock().now() + timeout;
  DUNLIN_ASSIGN(const Bytes offered, offer(window, member, timeout));
  auto theirs = WindowOffer::decode(offered);
  if (!theirs) return std::move(theirs).status().with_peer(peer(member));
  if (theirs->size != window.size) {
    return Status(Code::kInvalidArgument,
                  fmt::format("communicator '{}': the member allocates {} bytes, this one {}",
                              name_, theirs->size, window.size))
        .with_peer(peer(member));
  }
  DUNLIN_TRY(fabric_.link(peer(member), remaining(until)).status());
  DUNLIN_ASSIGN(auto imported, fabric_.import_region(peer(member), theirs->descriptor));
  // Mapped memory is accessed without further checks.
  if (imported->size() < window.size + kPage) {
    return Status(Code::kCorrupted,
                  fmt::format("communicator '{}': the member's region of {} bytes does not hold {}",
                              name_, imported->size(), window.size))
        .with_peer(peer(member));
  }
  remote = std::move(imported);
  window.offers.erase(member);
  return Status::ok();
}

Result<Bytes> Windows::offer(Window& window, int member, Duration timeout) {
  if (const auto fetched = window.offers.find(member); fetched != window.offers.end())
    return fetched->second;
  auto found = fabric_.bootstrap().lookup_from(
      peer(member), Bootstrap::key_of(topic(window), peer(member)), timeout);
  if (!found) return explain(std::move(found).status().with_peer(peer(member)));
  return found;
}

Status Windows::explain(Status error) const {
  return std::move(error).with_context(
      fmt::format("waiting for a member's memory of communicator '{}'", name_));
}

Status Windows::import(Window& window, std::span<const int> members, Duration timeout) {
  const TimePoint until = fabric_.clock().now() + timeout;
  DUNLIN_TRY(fetch(window, members, timeout));
  for (const int member : members) DUNLIN_TRY(import(window, member, remaining(until)));
  return Status::ok();
}

Status Windows::fetch(Window& window, std::span<const int> members, Duration timeout) {
  std::vector<int> missing;
  std::vector<Rank> peers;
  for (const int member : members) {
    if (window.remote[static_cast<std::size_t>(member)] || window.offers.contains(member)) continue;
    missing.push_back(member);
    peers.push_back(peer(member));
  }
  if (missing.empty()) return Status::ok();
  const TimePoint until = fabric_.clock().now() + timeout;
  auto offers = fabric_.bootstrap().lookup_each(topic(window), peers, timeout);
  if (!offers) return explain(std::move(offers).status());
  for (std::size_t i = 0; i < missing.size(); ++i)
    window.offers.emplace(missing[i], std::move((*offers)[i]));
  return fabric_.fetch_addresses(peers, remaining(until));
}

Duration Windows::remaining(TimePoint until) const {
  return std::max(until - fabric_.clock().now(), Duration::zero());
}

std::string Windows::topic(const Window& window) const {
  return fmt::format("communicator/{}/window {}", name_, window.id);
}

}  // namespace dunlin::collective
