// MappedCells and Notifier: notifications that are inline stores instead of virtual calls.
//
// A lane whose transport has the peer's board mapped (shared memory) offers MappedCells. The queues
// (channel/queue.h) notify through a Notifier, which stores directly into the peer's cell if it
// can, and calls Lane::notify() otherwise. Order, errors and counters are the same either way.
//
// The reason: a cache line takes 50 ns between two threads of a core. Two virtual calls, with
// Notifications passed through memory, add some 5 ns to a channel's message and its ACK. Owner
// thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "transports/transport.h"

namespace dunlin::transport {

class MappedCells {
 public:
  // Returns false if nothing was posted. Lane::notify() then reports the reason.
  bool try_notify(const Notification& notification) {
    if (state_ != State::kOpen || !peers_.is_present(peer_rank_) ||
        !is_notification_valid(notification, cells_.size())) [[unlikely]]
      return false;
    publish(notification);
    return true;
  }

 protected:
  // Tells after each notification whether the owner of the cells must be woken up.
  struct Doorbell {
    const std::atomic<std::uint32_t>& sleeping;  // not 0: the owner sleeps and needs a wake()
    bool needs_fence;  // the sleeper has no membarrier that orders our stores before this load
  };

  // All arguments must outlive the lane.
  MappedCells(std::span<NotifyCell> cells, Doorbell doorbell, const PeerTable& peers, Rank peer,
              PeerCounters& counters)
      : cells_(cells), doorbell_(doorbell), peers_(peers), peer_rank_(peer), counters_(counters) {}
  ~MappedCells() = default;

  // Returns a bool because building a Status costs nanoseconds that matter here.
  bool is_open() const { return state_ != State::kClosed && peers_.is_present(peer_rank_); }
  // Requires an open lane and a valid notification.
  void publish(const Notification& notification) {
    cells_[static_cast<std::size_t>(notification.id)].publish(notification);
    ++counters_.notifies;
    if (doorbell_.needs_fence) std::atomic_thread_fence(std::memory_order_seq_cst);
    // Either the sleeper's last check of its cells sees the notification, or this load sees that it
    // sleeps: the fence here, or the sleeper's membarrier, separates the two accesses of each side.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (doorbell_.sleeping.load(std::memory_order_relaxed) != 0) wake();
  }
  virtual void wake() = 0;

  const std::span<NotifyCell> cells_;  // the peer's
  const Doorbell doorbell_;
  const PeerTable& peers_;
  const Rank peer_rank_;
  PeerCounters& counters_;
  // kHeld: open, but notifications must wait for something that the lane has in progress.
  enum class State : std::uint8_t { kOpen, kHeld, kClosed } state_ = State::kOpen;
};

// Posts notifications on a lane in the fastest way that the lane offers.
class Notifier {
 public:
  explicit Notifier(Lane& lane) : lane_(lane), cells_(lane.mapped_cells()) {}

  Status notify(const Notification& notification) {
    if (cells_ != nullptr && cells_->try_notify(notification)) return Status::ok();
    return lane_.notify(notification, nullptr);
  }

 private:
  Lane& lane_;
  MappedCells* cells_;  // null if the lane has none
};

}  // namespace dunlin::transport
