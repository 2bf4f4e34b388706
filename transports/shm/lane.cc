#include "transports/shm/lane.h"

#include <cstring>

#include "transports/shm/region.h"
#include "transports/shm/transport.h"

namespace dunlin::transport::shm {

ShmLane::ShmLane(const ShmLink& link, PeerSegment& peer, const TransportContext& context)
    : link_(link),
      peer_(peer),
      cells_(peer.cells()),
      peers_(context.peers),
      peer_rank_(link.peer()),
      counters_(context.counters.peer(link.peer())) {}

bool ShmLane::is_target_right(const LocalSlice& from, const RemoteSlice& to) const {
  if (!is_put_right(link_, from, to)) return false;
  if (from.size() == 0) return true;
  const auto& region = static_cast<const ShmRemoteRegion&>(*to.region());
  return peer_.is_registered(region.place(), region.generation());
}

Status ShmLane::report() const {
  if (is_closed_) return Status(Code::kClosed, "the lane is closed").with_peer(peer_rank_);
  return peers_.check(peer_rank_);
}

Status ShmLane::report(const LocalSlice& from, const RemoteSlice& to) const {
  DUNLIN_TRY(check_put(link_, from, to));
  return Status(Code::kNotFound, "the peer has unregistered the region").with_peer(peer_rank_);
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
  if (!is_target_right(from, to)) [[unlikely]]
    return report(from, to);
  copy(from, to);
  fire(completion);
  return Status::ok();
}

Status ShmLane::put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                           Completion* completion) {
  if (!is_open()) [[unlikely]]
    return report();
  if (!is_target_right(from, to)) [[unlikely]]
    return report(from, to);
  if (!is_right(notification)) [[unlikely]]
    return report_notification(notification, cells_.size());
  copy(from, to);
  publish(notification);
  fire(completion);
  return Status::ok();
}

Status ShmLane::notify(const Notification& notification, Completion* completion) {
  if (!is_open()) [[unlikely]]
    return report();
  if (!is_right(notification)) [[unlikely]]
    return report_notification(notification, cells_.size());
  publish(notification);
  fire(completion);
  return Status::ok();
}

Status ShmLane::flush(Visibility, Completion* completion) {
  if (!is_open()) [[unlikely]]
    return report();
  // A stronger order than the copies have of themselves: whoever learns of the flush by any other
  // way than a notification sees them too.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  fire(completion);
  return Status::ok();
}

}  // namespace dunlin::transport::shm
