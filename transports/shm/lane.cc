#include "transports/shm/lane.h"

#include <cstring>

#include "transports/shm/region.h"
#include "transports/shm/transport.h"

namespace dunlin::transport::shm {

ShmLane::ShmLane(const ShmLink& link, PeerSegment& peer, const TransportContext& context)
    : link_(link),
      peer_(peer),
      peers_(context.peers),
      counters_(context.counters.peer(link.peer())) {}

Status ShmLane::check_open() const {
  if (is_closed_) return Status(Code::kClosed, "the lane is closed").with_peer(link_.peer());
  if (!peers_.is_present(link_.peer())) return peers_.check(link_.peer());
  return Status::ok();
}

Status ShmLane::check_target(const LocalSlice& from, const RemoteSlice& to) const {
  DUNLIN_TRY(check_put(link_, from, to));
  if (from.size() == 0) return Status::ok();
  const auto& region = static_cast<const ShmRemoteRegion&>(*to.region());
  if (!peer_.is_registered(region.place(), region.generation())) {
    return Status(Code::kNotFound, "the peer has unregistered the region").with_peer(link_.peer());
  }
  return Status::ok();
}

void ShmLane::copy(const LocalSlice& from, const RemoteSlice& to) {
  ++counters_.puts;
  if (from.size() == 0) return;
  const auto& region = static_cast<const ShmRemoteRegion&>(*to.region());
  std::memcpy(region.data() + to.offset(), from.data(), from.size());
  counters_.put_bytes += from.size();
}

void ShmLane::publish(const Notification& notification) {
  peer_.cells()[static_cast<std::size_t>(notification.id)].publish(notification);
  ++counters_.notifies;
  peer_.ring();
}

Status ShmLane::put(LocalSlice from, RemoteSlice to, Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_target(from, to));
  copy(from, to);
  fire(completion);
  return Status::ok();
}

Status ShmLane::put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                           Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_target(from, to));
  DUNLIN_TRY(check_notification(notification, peer_.cells().size()));
  copy(from, to);
  publish(notification);
  fire(completion);
  return Status::ok();
}

Status ShmLane::notify(const Notification& notification, Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_notification(notification, peer_.cells().size()));
  publish(notification);
  fire(completion);
  return Status::ok();
}

Status ShmLane::flush(Visibility, Completion* completion) {
  DUNLIN_TRY(check_open());
  // A stronger order than the copies have of themselves: whoever learns of the flush by any other
  // way than a notification sees them too.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  fire(completion);
  return Status::ok();
}

}  // namespace dunlin::transport::shm
