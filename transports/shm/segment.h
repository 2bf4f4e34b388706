// Segment: what a process shows its peers of the same host beside its regions: who it is, whether
// it sleeps, and which of its regions are still registered.
//
// Its descriptor, like every region's, is opened through /proc/PID/fd: there is no name that could
// outlive the process, and no message that the owner would have to answer. The kernel demands that
// both processes belong to the same user; the token proves that the pid is still the same process.
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

namespace dunlin::transport::shm {

using Token = std::array<std::uint64_t, 2>;

// Lies at the start of the segment's memory; shared between processes.
struct SegmentLayout {
  // Written once, before the address is published.
  alignas(kCacheLine) std::uint64_t magic;
  Token token;
  // The owner can't make its peers' cores order their stores (membarrier): they fence instead.
  std::uint32_t needs_fence;

  // 1 while the owner is about to sleep or asleep: whoever clears it rings the doorbell.
  alignas(kCacheLine) std::atomic<std::uint32_t> sleeping;

  // Generation of the region in each place; 0: none. A peer compares before it puts.
  alignas(kCacheLine) std::array<std::atomic<std::uint64_t>, kMaxRegions> generations;
};

// How a peer finds the segment; travels through the bootstrap.
struct SegmentAddress {
  std::string host_id;
  std::uint64_t pid_namespace = 0;
  std::int32_t pid = 0;
  std::int32_t segment_fd = -1;
  std::int32_t doorbell_fd = -1;  // write end of a pipe
  std::int32_t board_fd = -1;
  std::uint64_t board_bytes = 0;
  Token token{};

  Bytes encode() const;
  static Result<SegmentAddress> decode(std::span<const std::byte> bytes);
};

// As SegmentAddress::pid_namespace.
std::uint64_t this_pid_namespace();

// Opens descriptor `fd` of process `pid`.
Result<int> open_descriptor_of(int pid, int fd, int flags);

// A process's own segment.
class Segment {
 public:
  static Result<std::unique_ptr<Segment>> create(const std::string& host_id,
                                                 const MemoryRegion& board);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const SegmentAddress& address() const { return address_; }
  SegmentLayout& layout() { return *reinterpret_cast<SegmentLayout*>(memory_->data()); }
  // Readable when somebody rang.
  int doorbell_fd() const { return doorbell_read_; }
  void drain_doorbell();
  // Stores of peers that saw `sleeping` unset are visible after this; false: could not be arranged.
  static bool order_peers_stores();

 private:
  explicit Segment(std::shared_ptr<MemoryRegion> memory) : memory_(std::move(memory)) {}
  std::shared_ptr<MemoryRegion> memory_;
  SegmentAddress address_;
  int doorbell_read_ = -1;
  int doorbell_write_ = -1;
};

// A peer's segment and board, mapped here.
class PeerSegment {
 public:
  static Result<std::unique_ptr<PeerSegment>> attach(const SegmentAddress& address);
  ~PeerSegment();
  PeerSegment(const PeerSegment&) = delete;
  PeerSegment& operator=(const PeerSegment&) = delete;

  std::span<NotifyCell> cells() const { return cells_; }
  bool is_registered(std::uint32_t place, std::uint64_t generation) const {
    return layout().generations[place].load(std::memory_order_acquire) == generation;
  }
  // For MappedCells, which looks after each notification whether the owner sleeps. Without a fence
  // of ours in between it is Segment::order_peers_stores() that this pairs with.
  const std::atomic<std::uint32_t>& sleeping() const { return layout().sleeping; }
  bool needs_fence() const { return fence_; }
  void wake();

 private:
  PeerSegment() = default;
  SegmentLayout& layout() const { return *reinterpret_cast<SegmentLayout*>(memory_->data()); }

  std::shared_ptr<MemoryRegion> memory_;
  std::shared_ptr<MemoryRegion> board_;
  std::span<NotifyCell> cells_;
  int doorbell_ = -1;
  bool fence_ = false;
};

}  // namespace dunlin::transport::shm
