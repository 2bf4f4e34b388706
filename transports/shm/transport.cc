#include "transports/shm/transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "runtime/log.h"
#include "runtime/membarrier.h"
#include "transports/shm/region.h"

namespace dunlin::transport::shm {

ShmLink::ShmLink(Rank peer, std::unique_ptr<PeerProcess> process,
                 std::unique_ptr<PeerSegment> segment, const TransportContext& context,
                 ShmIndirect& indirect)
    : Link(peer),
      indirect_(indirect),
      process_(std::move(process)),
      segment_(std::move(segment)),
      data_(*this, *segment_, context, indirect),
      control_(*this, *segment_, context, indirect) {}

Result<std::unique_ptr<RemoteRegion>> ShmLink::import_region(std::span<const std::byte> descriptor,
                                                             std::size_t size) {
  return ShmRemoteRegion::import(*this, *process_, *segment_, descriptor, size, indirect_);
}

Result<std::unique_ptr<Transport>> ShmTransport::create(const TransportContext& context) {
  DUNLIN_ASSIGN(auto segment, Segment::create(context.config.host_id, *context.board.memory()));
  std::unique_ptr<ShmTransport> transport(new ShmTransport(context, std::move(segment)));
  if (context.spans_pid_namespaces) transport->start_server();
  return std::unique_ptr<Transport>(std::move(transport));
}

void ShmTransport::start_server() {
  auto server = DescriptorServer::create(context_.key, context_.config.shm_dir);
  Status status = server.status();
  if (server) status = segment_->offer_to(**server);
  if (status) {
    server_ = std::move(server).value();
    return;
  }
  DUNLIN_WARN(
      "shm: ranks in other PID namespaces (containers) of this host cannot share memory "
      "with this one: {}",
      status.message());
  segment_->refuse_handover(std::string(status.message()));
}

Status ShmTransport::reach(Rank peer, std::span<const std::byte> address) {
  DUNLIN_ASSIGN(const SegmentAddress there, SegmentAddress::decode(address));
  const SegmentAddress& here = segment_->address();
  if (there.host_id != here.host_id) {
    return Status(Code::kUnavailable, fmt::format("the peer is on another host ({} there, {} here)",
                                                  there.host_id, here.host_id))
        .with_peer(peer);
  }
  if (there.pid_namespace == here.pid_namespace) return Status::ok();
  return refuse(peer, check_place(there.handover, context_.config.shm_dir));
}

Status ShmTransport::refuse(Rank peer, Status why) {
  if (why) return why;
  if (!std::exchange(has_warned_, true)) {
    DUNLIN_WARN("ranks {} and {} do not share memory: {}", context_.self.value(), peer.value(),
                why.message());
  }
  return std::move(why).with_peer(peer);
}

Result<std::unique_ptr<PeerProcess>> ShmTransport::meet(const SegmentAddress& there) const {
  if (there.pid_namespace == segment_->address().pid_namespace)
    return std::make_unique<PeerProcess>(there.pid);
  DUNLIN_ASSIGN(auto client,
                DescriptorClient::connect(context_.key, there.handover, context_.config.shm_dir));
  return PeerProcess::meet(std::move(client));
}

Result<std::unique_ptr<Link>> ShmTransport::connect(Rank peer, std::span<const std::byte> address) {
  DUNLIN_ASSIGN(const SegmentAddress there, SegmentAddress::decode(address));
  auto process = meet(there);
  if (!process) return refuse(peer, std::move(process).status());
  auto segment = PeerSegment::attach(there, **process);
  if (!segment)
    return refuse(peer, std::move(segment).status().with_context("attaching shared memory"));
  if ((*process)->is_foreign()) {
    DUNLIN_ASSIGN(Fd pidfd, (*process)->watch());
    context_.peers.set_foreign_process(peer, std::move(pidfd));
  } else {
    context_.peers.set_local_pid(peer, there.pid);
  }
  return std::unique_ptr<Link>(std::make_unique<ShmLink>(
      peer, std::move(process).value(), std::move(segment).value(), context_, indirect_));
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
    return std::unique_ptr<TransportRegion>(std::make_unique<ShmRegion>(
        memory, shared, segment_->layout(), retired_, place, next_generation_++,
        context_.config.shm_process_memory, server_.get()));
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
  // Pairs with MappedCells::publish(). Peers that do not accept it use a fence.
  return !has_membarriers() || order_accepted_stores();
}

void ShmTransport::disarm() {
  segment_->layout().sleeping.store(0, std::memory_order_relaxed);
  // Needed even if the doorbell has not rung: a peer that cleared the flag may write its byte late.
  segment_->drain_doorbell();
}

}  // namespace dunlin::transport::shm
