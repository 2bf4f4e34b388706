#include "transports/shm/lane.h"

#include <atomic>
#include <cstring>

#include "transports/shm/transport.h"

namespace dunlin::transport::shm {

ShmLane::ShmLane(const ShmLink& link, PeerSegment& peer, const TransportContext& context,
                 ShmIndirect& indirect)
    : MappedCells(peer.cells(), {peer.sleeping(), peer.needs_fence()}, context.peers, link.peer(),
                  context.counters.peer(link.peer())),
      link_(link),
      peer_(peer),
      index_(context.index),
      indirect_(indirect),
      clock_(context.clock) {}

Status ShmLane::failure() const {
  if (process_memory_ != nullptr) DUNLIN_TRY(Status(process_memory_->failure()));
  return gpu_queue_ == nullptr ? Status::ok() : gpu_queue_->failure();
}

std::size_t ShmLane::progress() {
  const std::size_t completed = process_memory_ == nullptr ? 0 : process_memory_->run();
  return completed + (gpu_queue_ == nullptr ? 0 : gpu_queue_->progress());
}

void ShmLane::close() noexcept {
  if (process_memory_ != nullptr) process_memory_->run();
  if (gpu_queue_ != nullptr) gpu_queue_->close();
  state_ = State::kClosed;
}

bool ShmLane::is_any_indirect(const LocalSlice& local, const RemoteSlice& remote) const {
  if (local.size() == 0) return false;
  const auto& region = static_cast<const ShmRemoteRegion&>(*remote.region());
  return local.region()->memory()->kind() == MemoryKind::kCuda || region.gpu() != nullptr ||
         region.is_unmapped();
}

GpuPlace ShmLane::place_of(const LocalSlice& slice) {
  const MemoryRegion& memory = *slice.region()->memory();
  return {slice.data(), memory.gpu(), memory.gpu_device()};
}

GpuPlace ShmLane::place_of(const RemoteSlice& slice) {
  const auto& region = static_cast<const ShmRemoteRegion&>(*slice.region());
  return {region.data() + slice.offset(), region.gpu(), region.gpu_device()};
}

GpuQueue& ShmLane::gpu_queue() {
  if (gpu_queue_ == nullptr) gpu_queue_.reset(new GpuQueue(*this, indirect_.busy, clock_));
  return *gpu_queue_;
}

bool ShmLane::is_registered(const RemoteSlice& remote) const {
  const auto& region = static_cast<const ShmRemoteRegion&>(*remote.region());
  return peer_.is_registered(region.place(), region.generation());
}

bool ShmLane::is_transfer_possible(const LocalSlice& local, const RemoteSlice& remote) const {
  return is_transfer_valid(link_, local, remote) && is_local_valid(local, index_) &&
         (local.size() == 0 || is_registered(remote));
}

Status ShmLane::report() const {
  if (state_ == State::kClosed)
    return Status(Code::kClosed, "the lane is closed").with_peer(peer_rank_);
  return peers_.check(peer_rank_);
}

Status ShmLane::report(const LocalSlice& local, const RemoteSlice& remote) const {
  DUNLIN_TRY(check_transfer(link_, local, remote));
  DUNLIN_TRY(check_local(link_, local, index_, "shm"));
  return report_deregistered();
}

Status ShmLane::report_deregistered() const {
  return Status(Code::kNotFound, "the peer has deregistered the region").with_peer(peer_rank_);
}

void ShmLane::copy(const LocalSlice& from, const RemoteSlice& to) {
  count_put(from.size());
  if (from.size() == 0) return;
  const auto& region = static_cast<const ShmRemoteRegion&>(*to.region());
  if (from.size() <= kCacheLine) {
    copy_inline(region.data() + to.offset(), from.data(), from.size());
  } else {
    std::memcpy(region.data() + to.offset(), from.data(), from.size());
  }
}

void ShmLane::count_put(std::size_t size) {
  ++counters_.puts;
  counters_.put_bytes += size;
}

Status ShmLane::settle_process_memory() {
  if (process_memory_ == nullptr) return Status::ok();
  process_memory_->run();
  return process_memory_->failure();
}

ProcessMemoryQueue& ShmLane::process_memory() {
  if (process_memory_ == nullptr) {
    process_memory_.reset(
        new ProcessMemoryQueue(*this, indirect_.busy, link_.process(), peer_rank_));
  }
  return *process_memory_;
}

std::uint64_t ShmLane::address_of(const RemoteSlice& remote) {
  const auto& region = static_cast<const ShmRemoteRegion&>(*remote.region());
  return reinterpret_cast<std::uintptr_t>(region.data()) + remote.offset();
}

Status ShmLane::access_now(ProcessMemoryQueue::Direction direction, std::byte* local,
                           std::uint64_t remote, std::size_t size) {
  Completion done;
  DUNLIN_TRY(process_memory().add(direction, local, remote, size, &done));
  process_memory().run();
  return done.status();
}

Status ShmLane::deliver(std::byte* bytes, std::size_t size, std::uint64_t target) {
  return access_now(ProcessMemoryQueue::Direction::kPut, bytes, target, size);
}

// Between GPU memory here and memory of the peer that is not mapped, bytes pass through host
// memory.
Status ShmLane::put_by_detour(const LocalSlice& from, const RemoteSlice& to,
                              const Notification* notification, Completion* completion) {
  DUNLIN_TRY(settle_process_memory());
  DUNLIN_ASSIGN(auto detour, gpu_queue().make_detour(from.size(), address_of(to)));
  const GpuPlace host{detour.bytes.get(), nullptr, 0};
  return gpu_queue().copy(GpuQueue::Direction::kPut, place_of(from), host, from.size(),
                          notification, completion, std::move(detour));
}

Status ShmLane::get_by_detour(const RemoteSlice& from, const LocalSlice& to,
                              Completion* completion) {
  DUNLIN_ASSIGN(auto detour, gpu_queue().make_detour(from.size(), 0));
  DUNLIN_TRY(access_now(ProcessMemoryQueue::Direction::kGet, detour.bytes.get(), address_of(from),
                        from.size()));
  const GpuPlace host{detour.bytes.get(), nullptr, 0};
  return gpu_queue().copy(GpuQueue::Direction::kGet, host, place_of(to), from.size(), nullptr,
                          completion, std::move(detour));
}

Status ShmLane::put_indirect(const LocalSlice& from, const RemoteSlice& to,
                             const Notification* notification, Completion* completion) {
  const bool is_on_gpu = from.region()->memory()->kind() == MemoryKind::kCuda;
  if (!static_cast<const ShmRemoteRegion&>(*to.region()).is_unmapped()) {
    DUNLIN_TRY(settle_process_memory());
    DUNLIN_TRY(gpu_queue().copy(GpuQueue::Direction::kPut, place_of(from), place_of(to),
                                from.size(), notification, completion));
    count_put(from.size());
    return Status::ok();
  }
  if (is_on_gpu) {
    DUNLIN_TRY(put_by_detour(from, to, notification, completion));
    count_put(from.size());
    return Status::ok();
  }
  using Direction = ProcessMemoryQueue::Direction;
  if (notification == nullptr) {
    DUNLIN_TRY(process_memory().add(Direction::kPut, from.data(), address_of(to), from.size(),
                                    completion));
    count_put(from.size());
    return Status::ok();
  }
  // The notification is a part of the operation, whose completion tells of both.
  if (gpu_queue_ != nullptr && !gpu_queue_->has_room()) return Status::busy();
  DUNLIN_TRY(
      process_memory().add(Direction::kPut, from.data(), address_of(to), from.size(), nullptr));
  count_put(from.size());
  if (Status status = settle_process_memory(); !status.is_ok()) {
    fire(completion, std::move(status));
    return Status::ok();
  }
  return notify(*notification, completion);
}

// A get or an atomic takes effect at once, or in another stream than an earlier put.
Status ShmLane::await_gpu_puts() {
  if (gpu_queue_->has_puts()) gpu_queue_->progress();
  return gpu_queue_->has_puts() ? Status::busy() : Status::ok();
}

Status ShmLane::put(LocalSlice from, RemoteSlice to, Completion* completion) {
  if (!is_open()) [[unlikely]]
    return report();
  if (!is_transfer_possible(from, to)) [[unlikely]]
    return report(from, to);
  if (is_indirect(from, to)) [[unlikely]]
    return put_indirect(from, to, nullptr, completion);
  copy(from, to);
  fire(completion);
  return Status::ok();
}

Status ShmLane::put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                           Completion* completion) {
  if (!is_open()) [[unlikely]]
    return report();
  if (!is_transfer_possible(from, to)) [[unlikely]]
    return report(from, to);
  if (!is_notification_valid(notification, cells_.size())) [[unlikely]]
    return report_notification(notification, cells_.size());
  if (is_indirect(from, to)) [[unlikely]]
    return put_indirect(from, to, &notification, completion);
  if (must_queue()) [[unlikely]] {
    DUNLIN_TRY(settle_process_memory());
    if (must_queue()) {
      DUNLIN_TRY(gpu_queue_->add(&notification, completion));
      copy(from, to);
      return Status::ok();
    }
  }
  copy(from, to);
  publish(notification);
  fire(completion);
  return Status::ok();
}

Status ShmLane::notify(const Notification& notification, Completion* completion) {
  if (!try_notify(notification)) [[unlikely]] {
    if (!is_open()) return report();
    DUNLIN_TRY(check_notification(notification, cells_.size()));
    DUNLIN_TRY(settle_process_memory());
    if (must_queue()) return gpu_queue_->add(&notification, completion);
    publish(notification);
  }
  fire(completion);
  return Status::ok();
}

Status ShmLane::flush(Visibility, Completion* completion) {
  if (!is_open()) [[unlikely]]
    return report();
  if (must_queue()) [[unlikely]] {
    DUNLIN_TRY(settle_process_memory());
    if (must_queue()) return gpu_queue_->add(nullptr, completion);
  }
  // Orders the copies more strongly than a notification does: a process that learns of the flush in
  // any other way sees them, too.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  fire(completion);
  return Status::ok();
}

Status ShmLane::get(RemoteSlice from, LocalSlice to, Completion* completion) {
  if (!is_open()) [[unlikely]]
    return report();
  if (!is_transfer_possible(to, from)) [[unlikely]]
    return report(to, from);
  if (gpu_queue_ != nullptr) [[unlikely]]
    DUNLIN_TRY(await_gpu_puts());
  if (is_indirect(to, from)) [[unlikely]] {
    if (static_cast<const ShmRemoteRegion&>(*from.region()).is_unmapped()) {
      if (to.region()->memory()->kind() == MemoryKind::kCuda) {
        DUNLIN_TRY(get_by_detour(from, to, completion));
      } else {
        DUNLIN_TRY(process_memory().add(ProcessMemoryQueue::Direction::kGet, to.data(),
                                        address_of(from), from.size(), completion));
      }
    } else {
      DUNLIN_TRY(gpu_queue().copy(GpuQueue::Direction::kGet, place_of(from), place_of(to),
                                  from.size(), nullptr, completion));
    }
    ++counters_.gets;
    counters_.get_bytes += from.size();
    return Status::ok();
  }
  ++counters_.gets;
  counters_.get_bytes += from.size();
  if (from.size() != 0) {
    const auto& region = static_cast<const ShmRemoteRegion&>(*from.region());
    std::memcpy(to.data(), region.data() + from.offset(), from.size());
  }
  fire(completion);
  return Status::ok();
}

template <typename Operation>
Status ShmLane::apply(const RemoteSlice& word, std::uint64_t* before, Completion* completion,
                      Operation&& operation) {
  if (!is_open()) [[unlikely]]
    return report();
  DUNLIN_TRY(check_word(link_, word));
  if (!is_registered(word)) [[unlikely]]
    return report_deregistered();
  const auto& region = static_cast<const ShmRemoteRegion&>(*word.region());
  if (region.gpu() != nullptr) [[unlikely]]
    return Status(Code::kUnavailable, "shm has no atomics on GPU memory").with_peer(peer_rank_);
  if (region.is_unmapped()) [[unlikely]] {
    return Status(Code::kUnavailable,
                  "shm has no atomics on memory of another process that Dunlin did not allocate")
        .with_peer(peer_rank_);
  }
  if (gpu_queue_ != nullptr) [[unlikely]]
    DUNLIN_TRY(await_gpu_puts());
  ++counters_.atomics;
  const std::atomic_ref<std::uint64_t> value(
      *reinterpret_cast<std::uint64_t*>(region.data() + word.offset()));
  const std::uint64_t former = operation(value);
  if (before != nullptr) *before = former;
  fire(completion);
  return Status::ok();
}

Status ShmLane::fetch_add(RemoteSlice word, std::uint64_t operand, std::uint64_t* before,
                          Completion* completion) {
  return apply(word, before, completion, [&](const std::atomic_ref<std::uint64_t>& value) {
    return value.fetch_add(operand);
  });
}

Status ShmLane::compare_swap(RemoteSlice word, std::uint64_t expected, std::uint64_t desired,
                             std::uint64_t* before, Completion* completion) {
  return apply(word, before, completion, [&](const std::atomic_ref<std::uint64_t>& value) {
    value.compare_exchange_strong(expected, desired);
    return expected;
  });
}

}  // namespace dunlin::transport::shm
