// The lane of the shm transport: stores into the peer's mapped memory.
//
// A put between host memory copies before it returns, and its completion fires during the call. The
// release store of a notification follows the copy in program order. Together with the reader's
// acquire load, that keeps the ordering contract. Puts to and from GPU memory complete later, and
// the operations that are ordered behind them wait in a GpuQueue. Both lanes of a link are of this
// class.
#pragma once

#include <memory>

#include "transports/lane.h"
#include "transports/mapped_cells.h"
#include "transports/shm/gpu_queue.h"
#include "transports/shm/region.h"
#include "transports/shm/segment.h"
#include "transports/transport.h"

namespace dunlin::transport::shm {

class ShmLink;

class ShmLane final : public Lane,
                      public MappedCells,
                      public RemoteReads,
                      public RemoteAtomics,
                      private GpuQueue::Owner {
 public:
  ShmLane(const ShmLink& link, PeerSegment& peer, const TransportContext& context, ShmGpu& gpu);

  Status put(LocalSlice from, RemoteSlice to, Completion* completion) override;
  Status put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                    Completion* completion) override;
  Status notify(const Notification& notification, Completion* completion) override;
  Status flush(Visibility visibility, Completion* completion) override;
  RemoteReads* reads() override { return this; }
  RemoteAtomics* atomics() override { return this; }
  MappedCells* mapped_cells() override { return this; }
  Status failure() const override {
    return gpu_queue_ == nullptr ? Status::ok() : gpu_queue_->failure();
  }
  std::size_t progress() override { return gpu_queue_ == nullptr ? 0 : gpu_queue_->progress(); }
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

  // Whether an operation accesses GPU memory. Costs one load while the process has registered and
  // imported none.
  bool is_on_gpu(const LocalSlice& local, const RemoteSlice& remote) const {
    return gpu_.is_used && is_any_on_gpu(local, remote);
  }
  bool is_any_on_gpu(const LocalSlice& local, const RemoteSlice& remote) const;
  static GpuPlace place_of(const LocalSlice& slice);
  static GpuPlace place_of(const RemoteSlice& slice);
  GpuQueue& gpu_queue();
  Status put_on_gpu(const LocalSlice& from, const RemoteSlice& to, const Notification* notification,
                    Completion* completion);
  bool must_queue() const { return state_ == State::kHeld; }
  void publish_queued(const Notification& notification) override { publish(notification); }
  void hold_notifications(bool is_held) override {
    if (state_ != State::kClosed) state_ = is_held ? State::kHeld : State::kOpen;
  }

  const ShmLink& link_;
  PeerSegment& peer_;
  const std::size_t index_;  // of the transport in its fabric
  ShmGpu& gpu_;
  const Clock& clock_;
  std::unique_ptr<GpuQueue> gpu_queue_;  // null before the first put to or from GPU memory
};

}  // namespace dunlin::transport::shm
