// Segment: the shared memory in which a process tells its peers on the same host that it is the
// process they look for, whether it sleeps, and which of its regions are still registered.
//
// A peer opens the segment's file descriptor, like every region's, through /proc/PID/fd, or gets it
// from a descriptor server if it is in another PID namespace (peer_process.h). So there is no name
// that could outlive the process, and the owner's program need not answer a request. The kernel
// requires that both processes belong to the same user. The token proves that the pid still belongs
// to the same process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/bytes.h"
#include "runtime/memory/region.h"
#include "runtime/status.h"
#include "transports/notification.h"
#include "transports/shm/constants.h"
#include "transports/shm/descriptor_server.h"
#include "transports/shm/openings.h"
#include "transports/shm/peer_process.h"

namespace dunlin::transport::shm {

using Token = std::array<std::uint64_t, 2>;

// The content of the segment's memory, shared between processes.
struct SegmentLayout {
  // Written once, before the address is published.
  alignas(kCacheLine) std::uint64_t magic;
  Token token;
  // 1 if the owner cannot order its peers' stores by membarrier(2); peers then use a fence.
  std::uint32_t needs_fence;

  // 1 while the owner sleeps or is about to. The peer that clears it rings the doorbell.
  alignas(kCacheLine) std::atomic<std::uint32_t> sleeping;

  // The generation of the region in each place; 0 if there is none. A peer compares it before each
  // operation.
  alignas(kCacheLine) std::array<std::atomic<std::uint64_t>, kMaxRegions> generations;

  // Which GPU memory of the owner its peers have open.
  alignas(kCacheLine) Openings openings;
};

// Tells a peer how to find the segment. Sent through the bootstrap.
struct SegmentAddress {
  std::string host_id;
  std::uint64_t pid_namespace = 0;
  std::int32_t pid = 0;
  std::int32_t segment_fd = -1;
  std::int32_t doorbell_fd = -1;  // write end of a pipe
  std::int32_t board_fd = -1;
  std::uint64_t board_bytes = 0;
  Token token{};
  HandoverPlace handover{};  // for peers in other PID namespaces

  Bytes encode() const;
  static Result<SegmentAddress> decode(std::span<const std::byte> bytes);
};

// The value of SegmentAddress::pid_namespace for this process.
std::uint64_t this_pid_namespace();

// A process's own segment.
class Segment {
 public:
  static Result<std::unique_ptr<Segment>> create(const std::string& host_id,
                                                 const MemoryRegion& board);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const SegmentAddress& address() const { return address_; }
  // Lets peers in other PID namespaces have the segment, the board and the doorbell. The server
  // ends before this object.
  Status offer_to(DescriptorServer& server);
  // Says in the address why there is no server.
  void refuse_handover(std::string why) { address_.handover.refusal = std::move(why); }
  SegmentLayout& layout() { return *reinterpret_cast<SegmentLayout*>(memory_->data()); }
  const std::shared_ptr<MemoryRegion>& memory() const { return memory_; }
  // Readable after a peer rang the doorbell.
  int doorbell_fd() const { return doorbell_read_.get(); }
  void drain_doorbell();

 private:
  explicit Segment(std::shared_ptr<MemoryRegion> memory) : memory_(std::move(memory)) {}
  std::shared_ptr<MemoryRegion> memory_;
  SegmentAddress address_;
  Fd doorbell_read_;
  Fd doorbell_write_;
  Fd doorbell_offer_;  // also open for reading, so that a late ring raises no signal at a peer
};

// A peer's segment and board, mapped here.
class PeerSegment {
 public:
  static Result<std::unique_ptr<PeerSegment>> attach(const SegmentAddress& address,
                                                     PeerProcess& process);
  PeerSegment(const PeerSegment&) = delete;
  PeerSegment& operator=(const PeerSegment&) = delete;

  std::span<NotifyCell> cells() const { return cells_; }
  bool is_registered(std::uint32_t place, std::uint64_t generation) const {
    return layout().generations[place].load(std::memory_order_acquire) == generation;
  }
  // Records that this process is about to open the GPU memory of the region in this place. Returns
  // kNotFound if the region is not registered any more. The segment must outlive the result.
  Result<RecordedOpening> record_opening(std::uint32_t place, std::uint64_t generation) const;
  // MappedCells reads it: it checks after each notification whether the owner sleeps. If no fence
  // separates the two, this load pairs with order_accepted_stores() at the owner.
  const std::atomic<std::uint32_t>& sleeping() const { return layout().sleeping; }
  bool needs_fence() const { return fence_; }
  void wake();

 private:
  PeerSegment() = default;
  SegmentLayout& layout() const { return *reinterpret_cast<SegmentLayout*>(memory_->data()); }

  std::shared_ptr<MemoryRegion> memory_;
  std::shared_ptr<MemoryRegion> board_;
  std::span<NotifyCell> cells_;
  Fd doorbell_;
  bool fence_ = false;
};

}  // namespace dunlin::transport::shm
