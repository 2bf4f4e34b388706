// The lane of the shm transport: stores into the peer's mapped memory.
//
// A put between host memory copies before it returns, and its completion fires during the call. The
// release store of a notification follows the copy in program order. Together with the reader's
// acquire load, that keeps the ordering contract. Puts to and from GPU memory complete later, and
// the operations that are ordered behind them wait in a GpuQueue. Both lanes of a link are of this
// class. Puts to and gets from memory that is not mapped are gathered (process_memory.h);
// everything that is ordered behind them carries them out first.
#pragma once

#include <memory>

#include "transports/lane.h"
#include "transports/mapped_cells.h"
#include "transports/shm/gpu_queue.h"
#include "transports/shm/process_memory.h"
#include "transports/shm/region.h"
#include "transports/shm/segment.h"
#include "transports/transport.h"

namespace dunlin::transport::shm {

class ShmLink;

class ShmLane final : public Lane,
                      public MappedCells,
                      public RemoteReads,
                      public RemoteAtomics,
                      private GpuQueue::Owner,
                      private ProcessMemoryQueue::Owner {
 public:
  ShmLane(const ShmLink& link, PeerSegment& peer, const TransportContext& context,
          ShmIndirect& indirect);

  Status put(LocalSlice from, RemoteSlice to, Completion* completion) override;
  Status put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                    Completion* completion) override;
  Status notify(const Notification& notification, Completion* completion) override;
  Status flush(Visibility visibility, Completion* completion) override;
  RemoteReads* reads() override { return this; }
  RemoteAtomics* atomics() override { return this; }
  MappedCells* mapped_cells() override { return this; }
  Status failure() const override;
  bool is_idle() const override {
    return (gpu_queue_ == nullptr || gpu_queue_->is_idle()) &&
           (process_memory_ == nullptr || process_memory_->is_empty());
  }
  std::size_t progress() override;
  void close() noexcept override;

  Status get(RemoteSlice from, LocalSlice to, Completion* completion) override;
  // Carried out by this CPU on the mapped memory.
  Status fetch_add(RemoteSlice word, std::uint64_t operand, std::uint64_t* before,
                   Completion* completion) override;
  Status compare_swap(RemoteSlice word, std::uint64_t expected, std::uint64_t desired,
                      std::uint64_t* before, Completion* completion) override;
  AtomicScope scope() const override { return AtomicScope::kSystem; }

 private:
  // The checks that every operation needs beside those that MappedCells makes. They return a bool
  // because building a Status takes time.
  bool is_transfer_possible(const LocalSlice& local, const RemoteSlice& remote) const;
  bool is_registered(const RemoteSlice& remote) const;
  // The errors of operations that failed these checks, or those of MappedCells.
  Status report() const;
  Status report(const LocalSlice& local, const RemoteSlice& remote) const;
  Status report_deregistered() const;
  // Calls `operation` with the word as an atomic. `operation` returns the word's former value.
  template <typename Operation>
  Status apply(const RemoteSlice& word, std::uint64_t* before, Completion* completion,
               Operation&& operation);
  void copy(const LocalSlice& from, const RemoteSlice& to);
  void count_put(std::size_t size);
  void wake() override { peer_.wake(); }

  // Whether an operation accesses memory that this CPU cannot. Costs one load while the process has
  // registered and imported none.
  bool is_indirect(const LocalSlice& local, const RemoteSlice& remote) const {
    return indirect_.is_used && is_any_indirect(local, remote);
  }
  bool is_any_indirect(const LocalSlice& local, const RemoteSlice& remote) const;
  static GpuPlace place_of(const LocalSlice& slice);
  static GpuPlace place_of(const RemoteSlice& slice);
  GpuQueue& gpu_queue();
  Status put_indirect(const LocalSlice& from, const RemoteSlice& to,
                      const Notification* notification, Completion* completion);
  Status put_by_detour(const LocalSlice& from, const RemoteSlice& to,
                       const Notification* notification, Completion* completion);
  Status get_by_detour(const RemoteSlice& from, const LocalSlice& to, Completion* completion);
  ProcessMemoryQueue& process_memory();
  static std::uint64_t address_of(const RemoteSlice& remote);
  // Accesses memory of the peer that is not mapped, behind what waits in process_memory_.
  Status access_now(ProcessMemoryQueue::Direction direction, std::byte* local, std::uint64_t remote,
                    std::size_t size);
  // kBusy while puts of GPU memory are in progress. Requires gpu_queue_.
  Status await_gpu_puts();
  // Carries out what waits in process_memory_. Returns the failure of one of these operations.
  Status settle_process_memory();
  bool must_queue() const { return state_ == State::kHeld; }
  void publish_queued(const Notification& notification) override { publish(notification); }
  Status deliver(std::byte* bytes, std::size_t size, std::uint64_t target) override;
  void hold_notifications(bool is_held) override {
    is_held_for_gpu_ = is_held;
    update_state();
  }
  void hold_for_process_memory(bool is_held) override {
    is_held_for_process_memory_ = is_held;
    update_state();
  }
  void update_state() {
    if (state_ == State::kClosed) return;
    state_ = is_held_for_gpu_ || is_held_for_process_memory_ ? State::kHeld : State::kOpen;
  }

  const ShmLink& link_;
  PeerSegment& peer_;
  const std::size_t index_;  // of the transport in its fabric
  ShmIndirect& indirect_;
  const Clock& clock_;
  bool is_held_for_gpu_ = false;
  bool is_held_for_process_memory_ = false;
  std::unique_ptr<ProcessMemoryQueue> process_memory_;  // null before its first use
  std::unique_ptr<GpuQueue> gpu_queue_;  // null before the first put to or from GPU memory
};

}  // namespace dunlin::transport::shm
