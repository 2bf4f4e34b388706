#include "bindings/nccl/one_sided/group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "bindings/nccl/log.h"
#include "bindings/nccl/one_sided/connect_ranks.h"
#include "runtime/log.h"
#include "transports/remote_access.h"

namespace dunlin::nccl {

using transport::MemoryId;

namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

}  // namespace

Group::Group(std::shared_ptr<SharedEndpoint> endpoint,
             std::vector<std::unique_ptr<transport::Connection>> connections, int rank)
    : endpoint_(std::move(endpoint)), peers_(connections.size()) {
  const std::lock_guard lock(endpoint_->mutex);
  std::string transport = "memory";
  for (std::size_t i = 0; i < connections.size(); ++i) {
    peers_[i].connection = std::move(connections[i]);
    if (peers_[i].connection) transport = peers_[i].connection->transport();
  }
  DUNLIN_INFO("rank {} of {} is connected for one-sided transfers, over {}", rank, peers_.size(),
              transport);
  endpoint_->on_keep = [this] { advance_all(); };
}

Group::~Group() {
  std::vector<std::unique_ptr<transport::Connection>> ending;
  {
    const std::lock_guard lock(endpoint_->mutex);
    advance_all();
    endpoint_->on_keep = nullptr;
    for (Peer& peer : peers_) {
      if (peer.connection) ending.push_back(std::move(peer.connection));
    }
  }
  endpoint_->end(ending);
}

Result<std::unique_ptr<Group>> Group::connect(std::shared_ptr<SharedEndpoint> endpoint,
                                              std::span<const Handle> handles, int rank) {
  DUNLIN_ASSIGN(auto connections, connect_ranks(*endpoint, handles, rank));
  return std::unique_ptr<Group>(new Group(std::move(endpoint), std::move(connections), rank));
}

TimePoint Group::deadline() const {
  return SharedEndpoint::clock().now() + endpoint_->config->deadline;
}

Status Group::register_window(Window& window, void* data, std::size_t size,
                              Result<std::shared_ptr<GpuDriver>> gpu) {
  if (!gpu) return gpu.status();
  if (data == nullptr || size == 0)
    return {Code::kInvalidArgument, "memory without an address or a size"};
  window.data = static_cast<std::byte*>(data);
  window.size = size;
  if (*gpu != nullptr) {
    DUNLIN_ASSIGN(const auto allocation, (*gpu)->find(data));
    if (allocation) window.gpu_device = allocation->device;
  }
  window.gpu = *gpu;
  // Refuses memory of the wrong kind.
  DUNLIN_ASSIGN(window.id, endpoint_->endpoint->register_memory(data, size, std::move(*gpu)));
  return Status::ok();
}

Result<Window*> Group::add_window(void* data, std::size_t size,
                                  Result<std::shared_ptr<GpuDriver>> gpu) {
  std::unique_lock lock(endpoint_->mutex);
  auto made = std::make_unique<Window>();
  Window* const window = made.get();
  window->number = ++last_window_;
  Status status = register_window(*window, data, size, std::move(gpu));
  if (status.is_ok()) {
    by_number_.emplace(window->number, window);
    windows_.emplace(window, std::move(made));
  }
  // A failure is announced, too, so that the other ranks do not wait in vain.
  const auto memory = status.is_ok() ? static_cast<std::uint64_t>(window->id) : 0;
  for (Peer& peer : peers_) tell(peer, Announcement{window->number, memory, size});
  advance_all();
  if (status.is_ok()) {
    status = await_announcements(lock, window->number);
    if (status.is_ok()) return window;
    forget(*window);
  } else {
    for (Peer& peer : peers_) peer.windows.erase(window->number);
  }
  return std::move(status).with_context("registering memory with all ranks");
}

Status Group::await_announcements(std::unique_lock<std::mutex>& lock, std::uint64_t number) {
  std::vector<int> missing;
  const Status status = SharedEndpoint::await(lock, deadline(), [&]() -> Status {
    missing.clear();
    for (Peer& peer : peers_) {
      advance(peer);
      const auto found = peer.windows.find(number);
      if (found == peer.windows.end()) {
        DUNLIN_TRY(Status(state_of(peer)));
        missing.push_back(rank_of(peer));
      } else if (found->second.memory == 0) {
        return {Code::kClosed, fmt::format("rank {} could not register its memory", rank_of(peer))};
      }
    }
    return missing.empty() ? Status::ok() : Status::busy();
  });
  if (!status.is_busy()) return status;
  // When they come, they must not take this rank's announcement for the truth.
  for (const int rank : missing)
    fail(peers_[static_cast<std::size_t>(rank)],
         Status(Code::kDeadlineExceeded, "has not registered memory in time"));
  return {Code::kDeadlineExceeded,
          fmt::format("rank {} has not registered its memory", fmt::join(missing, ", "))};
}

Status Group::await_copies(std::unique_lock<std::mutex>& lock, const Window& window,
                           TimePoint limit) {
  const auto words = gpu_words_.find({window.gpu.get(), window.gpu_device});
  GpuWords* const changing = words == gpu_words_.end() ? nullptr : words->second.get();
  const Status status = SharedEndpoint::await(lock, limit, [&]() -> Status {
    advance_all();
    if (copies_.is_using(window) && copies_.poll().is_busy()) return Status::busy();
    if (changing == nullptr) return Status::ok();
    DUNLIN_TRY(changing->progress());
    return changing->is_using(window.data, window.size) ? Status::busy() : Status::ok();
  });
  if (!status.is_busy()) return status;
  return {Code::kDeadlineExceeded, "copies of GPU memory have not ended in time"};
}

void Group::forget(const Window& window) {
  for (Peer& peer : peers_) {
    const auto found = peer.windows.find(window.number);
    if (found == peer.windows.end()) continue;
    if (peer.connection) peer.connection->forget(MemoryId(found->second.memory));
    peer.windows.erase(found);
  }
  (void)endpoint_->endpoint->deregister(window.id);
  by_number_.erase(window.number);
  windows_.erase(&window);
}

Status Group::remove_window(const void* handle) {
  std::unique_lock lock(endpoint_->mutex);
  DUNLIN_ASSIGN(const Window* const window, find(handle));
  by_number_.erase(window->number);
  for (const Transfer& transfer : transfers_) {
    if (!transfer.is_used || transfer.completion.is_done()) continue;
    if (transfer.local != window && transfer.remote_window != window->number) continue;
    fail(peers_[static_cast<std::size_t>(transfer.rank)],
         Status(Code::kInvalidArgument, "memory was deregistered while it was in use"));
  }
  Status status = await_copies(lock, *window, deadline());
  forget(*window);
  return status;
}

Result<const Window*> Group::find(const void* window) const {
  const auto found = windows_.find(window);
  if (found != windows_.end()) return found->second.get();
  return Status(Code::kInvalidArgument, "this memory is not registered with this group");
}

Result<const Announcement*> Group::announced(const Peer& peer, std::uint64_t number) const {
  const auto found = peer.windows.find(number);
  if (found != peer.windows.end()) return &found->second;
  return Status(Code::kInvalidArgument,
                fmt::format("rank {} has not registered this memory", rank_of(peer)));
}

Result<Group::Transfer*> Group::prepare(int rank, WindowOffset local, WindowOffset remote,
                                        std::size_t size) {
  if (rank < 0 || rank >= this->size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("rank {} of a group of {}", rank, this->size()));
  }
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  advance(peer);
  DUNLIN_TRY(Status(state_of(peer)));
  const Window* here = nullptr;
  std::uint64_t there = 0;
  if (size > 0) {
    DUNLIN_ASSIGN(here, find(local.window));
    DUNLIN_ASSIGN(const Window* const window, find(remote.window));
    there = window->number;
    DUNLIN_ASSIGN(const Announcement* const target, announced(peer, there));
    if (!fits(local.offset, size, here->size) || !fits(remote.offset, size, target->size)) {
      return Status(Code::kOutOfRange,
                    fmt::format("{} bytes, at {} of {} here and at {} of {} of rank {}", size,
                                local.offset, here->size, remote.offset, target->size, rank));
    }
  }
  if (free_.empty()) free_.push_back(&transfers_.emplace_back());
  Transfer* const transfer = free_.back();
  transfer->rank = rank;
  transfer->is_get = false;
  transfer->local = here;
  transfer->local_offset = local.offset;
  transfer->remote_window = there;
  transfer->remote_offset = remote.offset;
  transfer->size = size;
  transfer->addition.reset();
  transfer->is_posted = false;
  transfer->completion.reset();
  return transfer;
}

// Until now, the transfer was the last of the free ones.
Result<Group::Transfer*> Group::begin(Transfer* transfer) {
  free_.pop_back();
  transfer->is_used = true;
  Peer& peer = peer_of(*transfer);
  peer.waiting.push_back(transfer);
  advance(peer);
  if (!peer.failure.is_error()) return transfer;
  transfer->is_used = false;
  free_.push_back(transfer);
  return Status(peer.failure);
}

Result<Group::Transfer*> Group::put(int rank, WindowOffset from, WindowOffset to, std::size_t size,
                                    const std::optional<Signal>& signal) {
  const std::lock_guard lock(endpoint_->mutex);
  DUNLIN_ASSIGN(Transfer* const transfer, prepare(rank, from, to, size));
  if (signal) {
    DUNLIN_ASSIGN(const Window* const window, find(signal->word.window));
    DUNLIN_ASSIGN(const Announcement* const target, announced(peer_of(*transfer), window->number));
    if (signal->word.offset % kWordBytes != 0 ||
        !fits(signal->word.offset, kWordBytes, target->size)) {
      return Status(Code::kOutOfRange, fmt::format("a signal at {} of {} bytes of rank {}",
                                                   signal->word.offset, target->size, rank));
    }
    transfer->addition = Addition{window->number, signal->word.offset, signal->value};
  }
  return begin(transfer);
}

Result<Group::Transfer*> Group::get(int rank, WindowOffset from, WindowOffset to,
                                    std::size_t size) {
  const std::lock_guard lock(endpoint_->mutex);
  DUNLIN_ASSIGN(Transfer* const transfer, prepare(rank, to, from, size));
  const auto& connection = peer_of(*transfer).connection;
  if (connection != nullptr && connection->lane().reads() == nullptr)
    return Status(Code::kUnavailable, fmt::format("{} has no gets here", connection->transport()));
  transfer->is_get = true;
  return begin(transfer);
}

Status Group::post(Peer& peer, Transfer& transfer) {
  if (transfer.size == 0) {
    transfer.completion.fire(Status::ok());
    return Status::ok();
  }
  DUNLIN_ASSIGN(const Announcement* const target, announced(peer, transfer.remote_window));
  DUNLIN_ASSIGN(transport::RemoteRegion* const region,
                peer.connection->remote(MemoryId(target->memory)));
  DUNLIN_ASSIGN(const auto remote, region->slice(transfer.remote_offset, transfer.size));
  DUNLIN_ASSIGN(const auto local,
                peer.connection->local(transfer.local->id, transfer.local_offset, transfer.size));
  transport::Lane& lane = peer.connection->lane();
  return transfer.is_get ? lane.reads()->get(remote, local, &transfer.completion)
                         : lane.put(local, remote, &transfer.completion);
}

void Group::tell(Peer& peer, const GroupMessage& message) {
  if (peer.connection == nullptr) {
    if (const auto* const made = std::get_if<Announcement>(&message))
      peer.windows.emplace(made->window, *made);
    return;
  }
  peer.owed.push_back(encode(message));
  ++peer.messages;
}

void Group::advance_all() {
  for (Peer& peer : peers_) {
    advance(peer);
    const bool is_lost = peer.connection && peer.connection->status().is_error() && !peer.has_left;
    if (is_lost) (void)state_of(peer);
  }
  for (const auto& [device, words] : gpu_words_) {
    const Status status = words->progress();
    if (!status.is_error()) continue;
    // This rank's signals are lost, so that nothing of it can be relied on.
    for (Peer& peer : peers_) fail(peer, Status(status));
  }
}

void Group::advance(Peer& peer) {
  if (peer.failure.is_error()) return;
  if (peer.connection == nullptr) return advance_own(peer);
  peer.connection->progress();
  take_messages(peer);
  while (!peer.waiting.empty()) {
    Transfer& next = *peer.waiting.front();
    Status status = post(peer, next);
    if (status.is_busy()) break;
    if (status.is_error()) return fail(peer, std::move(status));
    next.is_posted = true;
    peer.waiting.pop_front();
    if (!next.addition) continue;
    tell(peer, *next.addition);
    next.message = peer.messages;
  }
  while (!peer.owed.empty()) {
    const Status status = peer.connection->send(peer.owed.front());
    // Errors stay with the connection.
    if (!status.is_ok()) break;
    peer.owed.pop_front();
  }
}

// One transfer after the other.
void Group::advance_own(Peer& self) {
  while (!self.waiting.empty()) {
    Transfer& next = *self.waiting.front();
    Status status;
    if (!next.is_posted && next.size > 0) {
      const auto other = by_number_.find(next.remote_window);
      if (other == by_number_.end()) {
        status = Status(Code::kInvalidArgument, "memory was deregistered while it was in use");
      } else if (next.is_get) {
        status = copies_.begin(*next.local, next.local_offset, *other->second, next.remote_offset,
                               next.size);
      } else {
        status = copies_.begin(*other->second, next.remote_offset, *next.local, next.local_offset,
                               next.size);
      }
    }
    next.is_posted = true;
    if (status.is_ok()) status = copies_.poll();
    if (status.is_busy()) return;
    if (status.is_ok() && next.addition) status = add_here(*next.addition);
    if (status.is_error()) return fail(self, std::move(status));
    self.waiting.pop_front();
    next.completion.fire(Status::ok());
  }
}

void Group::take_messages(Peer& peer) {
  while (const auto bytes = peer.connection->receive()) {
    const auto message = decode_group_message(*bytes);
    Status status = message ? take(peer, *message)
                            : Status(Code::kCorrupted, "a malformed message of the peer");
    if (!status.is_ok()) return fail(peer, std::move(status));
  }
}

Status Group::take(Peer& peer, const GroupMessage& message) {
  if (const auto* const addition = std::get_if<Addition>(&message)) return add_here(*addition);
  if (std::holds_alternative<Farewell>(message)) {
    peer.has_left = true;
    return Status::ok();
  }
  const auto& announcement = std::get<Announcement>(message);
  const bool is_over =
      announcement.window <= last_window_ && !by_number_.contains(announcement.window);
  if (is_over) return Status::ok();  // this rank could not register its own
  if (!peer.windows.emplace(announcement.window, announcement).second)
    return {Code::kCorrupted, "a window was announced twice"};
  return Status::ok();
}

Status Group::add_here(const Addition& addition) {
  const auto found = by_number_.find(addition.window);
  if (found == by_number_.end()) {
    // This rank may have deregistered the window meanwhile.
    if (addition.window <= last_window_) return Status::ok();
    return {Code::kCorrupted, "a signal in memory that was never registered"};
  }
  const Window& window = *found->second;
  if (!fits(addition.offset, kWordBytes, window.size))
    return {Code::kCorrupted, "a signal outside the registered memory"};
  std::byte* const word = window.data + addition.offset;
  if (reinterpret_cast<std::uintptr_t>(word) % kWordBytes != 0)
    return {Code::kCorrupted, "a signal at an address that is not a multiple of 8"};
  if (window.gpu == nullptr) {
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(word))
        .fetch_add(addition.value, std::memory_order_release);
    return Status::ok();
  }
  const std::pair device(window.gpu.get(), window.gpu_device);
  auto words = gpu_words_.find(device);
  if (words == gpu_words_.end()) {
    DUNLIN_ASSIGN(auto made, GpuWords::create(window.gpu, window.gpu_device));
    words = gpu_words_.emplace(device, std::move(made)).first;
  }
  words->second->add(word, addition.value);
  return Status::ok();
}

bool Group::is_done(const Peer& peer, const Transfer& transfer) const {
  if (!transfer.is_posted || !transfer.completion.is_done()) return false;
  if (!transfer.addition || peer.connection == nullptr) return true;
  // The bytes may be there when the message about them still waits for a free slot at the peer.
  return transfer.message + peer.owed.size() + peer.connection->unsent() <= peer.messages;
}

const Status& Group::state_of(Peer& peer) {
  if (!peer.failure.is_error() && peer.connection && peer.connection->status().is_error())
    fail(peer, Status(peer.connection->status()));
  return peer.failure;
}

void Group::fail(Peer& peer, Status why) {
  if (peer.failure.is_error()) return;

  peer.failure = std::move(why).with_context(fmt::format("rank {} of the group", rank_of(peer)));
  (void)report(peer.failure);
  if (!peer.has_left && !failure_.is_error()) failure_ = peer.failure;
  peer.waiting.clear();
  // Before that, the transport may write completions. The peer learns that it is alone.
  if (peer.connection) peer.connection->close();
}

Result<bool> Group::test(Transfer* transfer) {
  const std::lock_guard lock(endpoint_->mutex);
  if (!transfer->is_used) {
    const Status status(Code::kInvalidArgument, "a transfer that is not in use was tested");
    (void)report(status);
    return status;
  }
  Peer& peer = peer_of(*transfer);
  advance(peer);
  if (!is_done(peer, *transfer)) {
    const Status& state = state_of(peer);
    if (state.is_error()) return state;
    return false;
  }
  // A failed transfer stays in use, since NCCL may test it again.
  const Status& outcome = transfer->completion.status();
  if (outcome.is_error()) {
    fail(peer, Status(outcome));
    return outcome;
  }
  transfer->is_used = false;
  free_.push_back(transfer);
  return true;
}

Status Group::progress() {
  const std::lock_guard lock(endpoint_->mutex);
  advance_all();
  return failure_;
}

bool Group::has_failed() const {
  const std::lock_guard lock(endpoint_->mutex);
  return failure_.is_error();
}

void Group::detach() {
  std::unique_lock lock(endpoint_->mutex);
  by_number_.clear();
  const auto is_under_way = [this](const Peer& peer) {
    return std::ranges::any_of(transfers_, [&](const Transfer& each) {
      return each.is_used && each.rank == rank_of(peer) && !each.completion.is_done();
    });
  };
  for (Peer& peer : peers_) {
    if (!peer.connection || peer.failure.is_error()) continue;
    if (is_under_way(peer)) {
      peer.connection->close();
    } else {
      tell(peer, Farewell{});
    }
  }
  const TimePoint limit = deadline();
  for (const auto& [handle, window] : windows_) {
    (void)report(await_copies(lock, *window, limit));
    (void)endpoint_->endpoint->deregister(window->id);
  }
  windows_.clear();
}

}  // namespace dunlin::nccl
