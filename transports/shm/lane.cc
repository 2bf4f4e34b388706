#include "transports/shm/lane.h"

#include <atomic>
#include <cstring>

#include "transports/shm/region.h"
#include "transports/shm/transport.h"

namespace dunlin::transport::shm {

ShmLane::ShmLane(const ShmLink& link, PeerSegment& peer, const TransportContext& context)
    : MappedCells(peer.cells(), {peer.sleeping(), peer.needs_fence()}, context.peers, link.peer(),
                  context.counters.peer(link.peer())),
      link_(link),
      peer_(peer),
      index_(context.index) {}

bool ShmLane::is_registered(const RemoteSlice& remote) const {
  const auto& region = static_cast<const ShmRemoteRegion&>(*remote.region());
  return peer_.is_registered(region.place(), region.generation());
}

bool ShmLane::is_transfer_possible(const LocalSlice& local, const RemoteSlice& remote) const {
  return is_transfer_valid(link_, local, remote) && is_local_valid(local, index_) &&
         (local.size() == 0 || is_registered(remote));
}

Status ShmLane::report() const {
  if (is_closed_) return Status(Code::kClosed, "the lane is closed").with_peer(peer_rank_);
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
  ++counters_.puts;
  if (from.size() == 0) return;
  const auto& region = static_cast<const ShmRemoteRegion&>(*to.region());
  if (from.size() <= kCacheLine) {
    copy_inline(region.data() + to.offset(), from.data(), from.size());
  } else {
    std::memcpy(region.data() + to.offset(), from.data(), from.size());
  }
  counters_.put_bytes += from.size();
}

Status ShmLane::put(LocalSlice from, RemoteSlice to, Completion* completion) {
  if (!is_open()) [[unlikely]]
    return report();
  if (!is_transfer_possible(from, to)) [[unlikely]]
    return report(from, to);
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
  copy(from, to);
  publish(notification);
  fire(completion);
  return Status::ok();
}

Status ShmLane::notify(const Notification& notification, Completion* completion) {
  if (!try_notify(notification)) [[unlikely]]
    return is_open() ? report_notification(notification, cells_.size()) : report();
  fire(completion);
  return Status::ok();
}

Status ShmLane::flush(Visibility, Completion* completion) {
  if (!is_open()) [[unlikely]]
    return report();
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
  ++counters_.atomics;
  const auto& region = static_cast<const ShmRemoteRegion&>(*word.region());
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
