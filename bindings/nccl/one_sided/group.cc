#include "bindings/nccl/one_sided/group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "bindings/nccl/log.h"
#include "runtime/log.h"
#include "transports/remote_access.h"

namespace dunlin::nccl {

using transport::MemoryId;

namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

bool fits(std::uint64_t offset, std::size_t size, std::uint64_t memory) {
  return offset <= memory && size <= memory - offset;
}

Bytes greeting_of(int rank) {
  ByteWriter writer;
  return writer.number(static_cast<std::uint32_t>(rank)).take();
}

}  // namespace

Group::Group(std::shared_ptr<SharedEndpoint> endpoint, std::size_t ranks, int rank)
    : endpoint_(std::move(endpoint)), rank_(rank), peers_(ranks) {}

Group::~Group() {
  std::vector<std::unique_ptr<transport::Connection>> ending = std::move(arriving_);
  for (Peer& peer : peers_) {
    if (peer.connection) ending.push_back(std::move(peer.connection));
    if (peer.other_end) ending.push_back(std::move(peer.other_end));
  }
  endpoint_->end(ending);
}

Result<std::unique_ptr<Group>> Group::connect(std::shared_ptr<SharedEndpoint> endpoint,
                                              std::span<const Handle> handles, int rank) {
  std::unique_ptr<Group> made(new Group(std::move(endpoint), handles.size(), rank));
  std::unique_lock lock(made->endpoint_->mutex);
  DUNLIN_TRY(made->dial(handles));
  const auto missing = [&] {
    std::vector<int> ranks;
    for (const Peer& peer : made->peers_) {
      if (!peer.connection || !peer.connection->status().is_ok())
        ranks.push_back(made->rank_of(peer));
    }
    return fmt::format("not connected with rank {}", fmt::join(ranks, ", "));
  };
  Status status = made->await(
      lock, [&] { return made->check_connected(); }, missing);
  lock.unlock();  // the destructor takes it
  DUNLIN_TRY(std::move(status));
  DUNLIN_INFO("rank {} of {} is connected for one-sided transfers, over {}", rank, handles.size(),
              made->peers_[static_cast<std::size_t>(rank)].connection->transport());
  return made;
}

// Each rank connects to those above it, and to itself.
Status Group::dial(std::span<const Handle> handles) {
  for (std::size_t to = static_cast<std::size_t>(rank_); to < handles.size(); ++to) {
    DUNLIN_ASSIGN(const auto blob, blob_of(handles[to]));
    DUNLIN_ASSIGN(peers_[to].connection, endpoint_->endpoint->connect(blob, greeting_of(rank_)));
  }
  return Status::ok();
}

Status Group::accept_peers() {
  while (auto connection = endpoint_->endpoint->accept())
    arriving_.push_back(std::move(connection));
  for (auto& connection : arriving_) {
    connection->progress();
    if (connection->status().is_busy()) continue;
    DUNLIN_TRY(Status(connection->status()).with_context("a rank that was connecting"));
    ByteReader reader(connection->greeting());
    const auto rank = reader.number<std::uint32_t>();
    if (!reader.at_end() || rank > static_cast<std::uint32_t>(rank_))
      return {Code::kCorrupted, "a process has connected that is not a rank of the group"};
    Peer& peer = peers_[rank];
    auto& place = static_cast<int>(rank) == rank_ ? peer.other_end : peer.connection;
    if (place) return {Code::kCorrupted, fmt::format("rank {} has connected twice", rank)};
    place = std::move(connection);
  }
  std::erase(arriving_, nullptr);
  return Status::ok();
}

Status Group::check_connected() {
  DUNLIN_TRY(accept_peers());
  bool is_busy = peers_[static_cast<std::size_t>(rank_)].other_end == nullptr;
  for (Peer& peer : peers_) {
    if (peer.connection) peer.connection->progress();
    const Status status = peer.connection ? peer.connection->status() : Status::busy();
    if (status.is_error())
      return Status(status).with_context(fmt::format("connecting with rank {}", rank_of(peer)));
    is_busy |= status.is_busy();
  }
  return is_busy ? Status::busy() : Status::ok();
}

template <typename Ready, typename Missing>
Status Group::await(std::unique_lock<std::mutex>& lock, Ready&& ready, Missing&& missing) {
  constexpr auto kPause = std::chrono::microseconds(20);
  const TimePoint deadline = SharedEndpoint::clock().now() + endpoint_->config->deadline;
  for (;;) {
    Status status = ready();
    if (!status.is_busy()) return status;
    if (SharedEndpoint::clock().now() >= deadline) return {Code::kDeadlineExceeded, missing()};
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

Result<Group::Window*> Group::add_window(void* data, std::size_t size,
                                         std::shared_ptr<GpuDriver> gpu) {
  std::unique_lock lock(endpoint_->mutex);
  auto made = std::make_unique<Window>();
  made->number = ++last_window_;
  made->data = static_cast<std::byte*>(data);
  made->size = size;
  // What fails here is announced, too, so that the other ranks do not wait in vain.
  Status status = [&]() -> Status {
    if (data == nullptr || size == 0)
      return {Code::kInvalidArgument, "memory without an address or a size"};
    DUNLIN_ASSIGN(made->id, endpoint_->endpoint->register_memory(data, size, gpu));
    if (gpu == nullptr) return Status::ok();
    DUNLIN_ASSIGN(const auto allocation, gpu->find(data));
    made->gpu_device = allocation->device;
    made->gpu = std::move(gpu);
    return Status::ok();
  }();
  const auto memory = static_cast<std::uint64_t>(made->id);
  for (Peer& peer : peers_)
    tell(peer, Announcement{made->number, status.is_ok() ? memory : 0, size});
  Window* const window = made.get();
  if (status.is_ok()) {
    by_number_.emplace(window->number, window);
    windows_.emplace(window, std::move(made));
    status = await(
        lock, [&] { return check_announced(window->number); },
        [&] { return missing_announcements(window->number); });
  }
  if (status.is_ok()) return window;
  lock.unlock();
  if (made == nullptr) (void)remove_window(window);
  return std::move(status).with_context("registering memory with all ranks");
}

Status Group::check_announced(std::uint64_t number) {
  bool is_busy = false;
  for (Peer& peer : peers_) {
    advance(peer);
    const auto found = peer.windows.find(number);
    if (found == peer.windows.end()) {
      DUNLIN_TRY(state_of(peer));
      is_busy = true;
    } else if (found->second.memory == 0) {
      return {Code::kClosed, fmt::format("rank {} could not register its memory", rank_of(peer))};
    }
  }
  return is_busy ? Status::busy() : Status::ok();
}

std::string Group::missing_announcements(std::uint64_t number) const {
  std::vector<int> ranks;
  for (const Peer& peer : peers_) {
    if (!peer.windows.contains(number)) ranks.push_back(rank_of(peer));
  }
  return fmt::format("rank {} has not registered its memory", fmt::join(ranks, ", "));
}

Status Group::remove_window(const void* handle) {
  const std::lock_guard lock(endpoint_->mutex);
  DUNLIN_ASSIGN(const Window* const window, find(handle));
  for (const Transfer& transfer : transfers_) {
    if (!transfer.is_used || transfer.completion.is_done()) continue;
    if (transfer.local != window && transfer.remote_window != window->number) continue;
    fail(peers_[static_cast<std::size_t>(transfer.rank)],
         Status(Code::kInvalidArgument, "memory was deregistered while it was in use"));
  }
  if (window->gpu != nullptr) {
    const auto found = gpu_words_.find({window->gpu.get(), window->gpu_device});
    const TimePoint deadline = SharedEndpoint::clock().now() + endpoint_->config->deadline;
    if (found != gpu_words_.end())
      DUNLIN_TRY(found->second->finish(SharedEndpoint::clock(), deadline));
  }
  for (Peer& peer : peers_) {
    const auto found = peer.windows.find(window->number);
    if (found == peer.windows.end()) continue;
    peer.connection->forget(MemoryId(found->second.memory));
    peer.windows.erase(found);
  }
  Status status = endpoint_->endpoint->deregister(window->id);
  by_number_.erase(window->number);
  windows_.erase(handle);
  return status;
}

Result<const Group::Window*> Group::find(const void* window) const {
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

Result<Group::Transfer*> Group::prepare(int rank, Place local, Place remote, std::size_t size) {
  if (rank < 0 || rank >= this->size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("rank {} of a group of {}", rank, this->size()));
  }
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  advance(peer);
  DUNLIN_TRY(state_of(peer));
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

// Until now, the transfer was among the free ones.
Result<Group::Transfer*> Group::begin(Transfer* transfer) {
  free_.pop_back();
  transfer->is_used = true;
  Peer& peer = peers_[static_cast<std::size_t>(transfer->rank)];
  peer.waiting.push_back(transfer);
  advance(peer);
  if (!peer.failure.is_error()) return transfer;
  release(transfer);
  return Status(peer.failure);
}

void Group::release(Transfer* transfer) {
  transfer->is_used = false;
  free_.push_back(transfer);
}

Result<Group::Transfer*> Group::put(int rank, Place from, Place to, std::size_t size,
                                    const std::optional<Signal>& signal) {
  const std::lock_guard lock(endpoint_->mutex);
  DUNLIN_ASSIGN(Transfer* const transfer, prepare(rank, from, to, size));
  if (signal) {
    DUNLIN_ASSIGN(const Window* const window, find(signal->word.window));
    DUNLIN_ASSIGN(const Announcement* const target,
                  announced(peers_[static_cast<std::size_t>(rank)], window->number));
    if (signal->word.offset % kWordBytes != 0 ||
        !fits(signal->word.offset, kWordBytes, target->size)) {
      return Status(Code::kOutOfRange, fmt::format("a signal at {} of {} bytes of rank {}",
                                                   signal->word.offset, target->size, rank));
    }
    transfer->addition = Addition{window->number, signal->word.offset, signal->value};
  }
  return begin(transfer);
}

Result<Group::Transfer*> Group::get(int rank, Place from, Place to, std::size_t size) {
  const std::lock_guard lock(endpoint_->mutex);
  DUNLIN_ASSIGN(Transfer* const transfer, prepare(rank, to, from, size));
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.connection->lane().reads() == nullptr) {
    return Status(Code::kUnavailable,
                  fmt::format("{} has no gets here", peer.connection->transport()));
  }
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
  peer.owed.push_back(encode(message));
  ++peer.messages;
}

void Group::advance(Peer& peer) {
  peer.connection->progress();
  if (peer.other_end) peer.other_end->progress();
  if (peer.failure.is_error()) return;
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

void Group::take_messages(Peer& peer) {
  while (const auto bytes = peer.inbound().receive()) {
    const auto message = decode_group_message(*bytes);
    Status status = message ? take(peer, *message)
                            : Status(Code::kCorrupted, "a malformed message of the peer");
    if (!status.is_ok()) return fail(peer, std::move(status));
  }
}

Status Group::take(Peer& peer, const GroupMessage& message) {
  if (const auto* const addition = std::get_if<Addition>(&message)) return add_here(*addition);
  const auto& announcement = std::get<Announcement>(message);
  if (!peer.windows.emplace(announcement.window, announcement).second)
    return {Code::kCorrupted, "a window was announced twice"};
  return Status::ok();
}

Status Group::add_here(const Addition& addition) {
  const auto found = by_number_.find(addition.window);
  if (found == by_number_.end()) {
    // This rank may have deregistered the window meanwhile.
    if (addition.window <= last_window_) return Status::ok();
    return {Code::kCorrupted, "a signal in a window that is not"};
  }
  const Window& window = *found->second;
  if (!fits(addition.offset, kWordBytes, window.size))
    return {Code::kCorrupted, "a signal outside its window"};
  std::byte* const word = window.data + addition.offset;
  if (reinterpret_cast<std::uintptr_t>(word) % kWordBytes != 0)
    return {Code::kCorrupted, "a signal in a window that does not begin at a multiple of 8"};
  if (window.gpu == nullptr) {
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(word))
        .fetch_add(addition.value, std::memory_order_release);
    return Status::ok();
  }
  const std::pair place(window.gpu.get(), window.gpu_device);
  auto words = gpu_words_.find(place);
  if (words == gpu_words_.end()) {
    DUNLIN_ASSIGN(auto made, GpuWords::create(window.gpu, window.gpu_device));
    words = gpu_words_.emplace(place, std::move(made)).first;
  }
  words->second->add(word, addition.value);
  return Status::ok();
}

bool Group::is_done(const Peer& peer, const Transfer& transfer) const {
  if (!transfer.is_posted || !transfer.completion.is_done()) return false;
  // The bytes may be there when the message about them still waits for a free slot at the peer.
  return !transfer.addition ||
         transfer.message + peer.owed.size() + peer.connection->unsent() <= peer.messages;
}

Status Group::state_of(Peer& peer) {
  if (!peer.failure.is_error() && peer.connection->status().is_error()) {
    fail(peer, Status(peer.connection->status()));
  }
  return peer.failure;
}

void Group::fail(Peer& peer, Status why) {
  if (peer.failure.is_error()) return;
  peer.failure = std::move(why).with_context(fmt::format("rank {} of the group", rank_of(peer)));
  has_failed_ = true;
  (void)report(peer.failure);
  peer.waiting.clear();
  // The transport may write completions until the lane has been closed.
  peer.connection->lane().close();
}

Result<bool> Group::test(Transfer* transfer) {
  const std::lock_guard lock(endpoint_->mutex);
  if (!transfer->is_used)
    return Status(Code::kInvalidArgument, "a transfer that is not in use was tested");
  Peer& peer = peers_[static_cast<std::size_t>(transfer->rank)];
  advance(peer);
  if (!is_done(peer, *transfer)) {
    Status state = state_of(peer);
    if (!state.is_error()) return false;
    release(transfer);
    return state;
  }
  Status outcome = transfer->completion.status();
  release(transfer);
  if (!outcome.is_error()) return true;
  fail(peer, Status(outcome));
  return outcome;
}

Status Group::progress() {
  const std::lock_guard lock(endpoint_->mutex);
  for (Peer& peer : peers_) {
    advance(peer);
    // A peer that has left in good order is missed only by transfers to it.
    if (peer.connection->status().code() == Code::kPeerDead) (void)state_of(peer);
  }
  for (auto at = gpu_words_.begin(); at != gpu_words_.end(); ++at) {
    Status status = at->second->progress();
    if (!status.is_error()) continue;
    for (Peer& peer : peers_) fail(peer, Status(status));
    gpu_words_.erase(at);
    return status;
  }
  return Status::ok();
}

bool Group::has_failed() const {
  const std::lock_guard lock(endpoint_->mutex);
  return has_failed_;
}

void Group::detach() {
  const std::lock_guard lock(endpoint_->mutex);
  const bool is_busy = std::ranges::any_of(
      transfers_, [](const Transfer& each) { return each.is_used && !each.completion.is_done(); });
  for (Peer& peer : peers_) {
    if (is_busy) peer.connection->lane().close();
  }
  const TimePoint deadline = SharedEndpoint::clock().now() + endpoint_->config->deadline;
  for (const auto& [device, words] : gpu_words_)
    (void)report(words->finish(SharedEndpoint::clock(), deadline));
  for (const auto& [handle, window] : windows_) (void)endpoint_->endpoint->deregister(window->id);
  windows_.clear();
  by_number_.clear();
}

}  // namespace dunlin::nccl
