#include "transports/shm/transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include "transports/shm/region.h"

namespace dunlin::transport::shm {

ShmLink::ShmLink(Rank peer, int pid, std::unique_ptr<PeerSegment> segment,
                 const TransportContext& context, ShmIndirect& indirect)
    : Link(peer),
      pid_(pid),
      indirect_(indirect),
      segment_(std::move(segment)),
      data_(*this, *segment_, context, indirect),
      control_(*this, *segment_, context, indirect) {}

Result<std::unique_ptr<RemoteRegion>> ShmLink::import_region(std::span<const std::byte> descriptor,
                                                             std::size_t size) {
  return ShmRemoteRegion::import(*this, pid_, *segment_, descriptor, size, indirect_);
}

Result<std::unique_ptr<Transport>> ShmTransport::create(const TransportContext& context) {
  DUNLIN_ASSIGN(auto segment, Segment::create(context.config.host_id, *context.board.memory()));
  return std::unique_ptr<Transport>(new ShmTransport(context, std::move(segment)));
}

Status ShmTransport::reach(Rank peer, std::span<const std::byte> address) {
  DUNLIN_ASSIGN(const SegmentAddress there, SegmentAddress::decode(address));
  const SegmentAddress& here = segment_->address();
  if (there.host_id != here.host_id) {
    return Status(Code::kUnavailable, fmt::format("the peer is on another host ({} there, {} here)",
                                                  there.host_id, here.host_id))
        .with_peer(peer);
  }
  if (there.pid_namespace != here.pid_namespace) {
    return Status(Code::kUnavailable,
                  "the peer is in another PID namespace (container) of this host")
        .with_peer(peer);
  }
  return Status::ok();
}

Result<std::unique_ptr<Link>> ShmTransport::connect(Rank peer, std::span<const std::byte> address) {
  DUNLIN_ASSIGN(const SegmentAddress there, SegmentAddress::decode(address));
  auto segment = PeerSegment::attach(there);
  if (!segment)
    return std::move(segment).status().with_context("attaching shared memory").with_peer(peer);
  context_.peers.set_local_pid(peer, there.pid);
  return std::unique_ptr<Link>(
      std::make_unique<ShmLink>(peer, there.pid, std::move(segment).value(), context_, indirect_));
}

Result<std::unique_ptr<TransportRegion>> ShmTransport::register_memory(
    const std::shared_ptr<MemoryRegion>& memory) {
  std::optional<SharedGpuRegion> shared;
  if (memory->kind() == MemoryKind::kCuda && memory->is_owned()) {
    // Its peers would wait in vain for what this rank has to send if only they could not open it.
    auto made = ShmRegion::share(*memory);
    if (!made && made.status().code() != Code::kUnavailable) return std::move(made).status();
    if (made) shared = *made;
  }
  auto& generations = segment_->layout().generations;
  for (std::uint32_t tried = 0; tried < kMaxRegions; ++tried) {
    const std::uint32_t place = next_place_++ % kMaxRegions;
    if (generations[place].load(std::memory_order_relaxed) != 0) continue;
    if (memory->kind() == MemoryKind::kCuda) indirect_.is_used = true;
    return std::unique_ptr<TransportRegion>(
        std::make_unique<ShmRegion>(memory, shared, segment_->layout(), retired_, place,
                                    next_generation_++, context_.config.shm_process_memory));
  }
  return Status(Code::kResourceExhausted,
                fmt::format("the limit of {} registered regions is reached", kMaxRegions));
}

// A process that has ended stores nothing any more, and one that lives cannot be kept from it. A
// rank that has left has stored its last. Ranks that are threads of one process end with their
// threads, which nothing here can see.
Status ShmTransport::revoke(Rank peer) {
  const pid_t pid = context_.peers.local_pid(peer);
  if (context_.peers.state(peer) == PeerState::kLeft) return Status::ok();
  if (pid == 0 || pid == getpid() || context_.peers.has_ended(peer)) return Status::ok();
  return Status::busy();
}

bool ShmTransport::arm() {
  // Nothing wakes this process when a GPU is done, and nobody else runs what waits for its turn.
  if (!indirect_.busy.is_empty()) return false;
  segment_->layout().sleeping.store(1, std::memory_order_relaxed);
  // Orders the store before the caller's last poll of its cells.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Pairs with MappedCells::publish(). If the kernel does not support it, the peers use a fence.
  return Segment::order_peers_stores() || segment_->layout().needs_fence != 0;
}

void ShmTransport::disarm() {
  segment_->layout().sleeping.store(0, std::memory_order_relaxed);
  // Needed even if the doorbell has not rung: a peer that cleared the flag may write its byte late.
  segment_->drain_doorbell();
}

}  // namespace dunlin::transport::shm
