// MappedCells, Notifier: notifications without a call, where the peer's cells are memory of this
// process.
//
// Between two threads of a core a cache line takes 50 ns; of a channel's message and its ACK, two
// virtual calls and Notifications that travel through memory are some 5 ns. So a lane that has the
// peer's board mapped has MappedCells, and the queues notify through a Notifier, whose stores
// end up in their own code. Order, errors and counters are those of Lane::notify(). Owner thread
// only.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "transports/transport.h"

namespace dunlin::transport {

class MappedCells {
 public:
  // False: nothing was posted, and Lane::notify() says why.
  bool try_notify(const Notification& notification) {
    if (!is_open() || !is_notification_right(notification, cells_.size())) [[unlikely]]
      return false;
    publish(notification);
    return true;
  }

 protected:
  // What has to be looked at after each notification.
  struct Doorbell {
    const std::atomic<std::uint32_t>& sleeping;  // not 0: the owner of the cells needs a wake()
    bool needs_fence;                            // nobody else orders our stores before that look
  };

  // Everything lives as long as the lane.
  MappedCells(std::span<NotifyCell> cells, Doorbell doorbell, const PeerTable& peers, Rank peer,
              PeerCounters& counters)
      : cells_(cells), doorbell_(doorbell), peers_(peers), peer_rank_(peer), counters_(counters) {}
  ~MappedCells() = default;

  // Without a Status to build: a few nanoseconds are what counts.
  bool is_open() const { return !is_closed_ && peers_.is_present(peer_rank_); }
  // To an open lane, a notification that is right.
  void publish(const Notification& notification) {
    cells_[static_cast<std::size_t>(notification.id)].publish(notification);
    ++counters_.notifies;
    if (doorbell_.needs_fence) std::atomic_thread_fence(std::memory_order_seq_cst);
    // Either the sleeper's last look at its cells sees the notification, or this sees that it
    // sleeps: the fence, or the sleeper's membarrier, comes between our two accesses.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (doorbell_.sleeping.load(std::memory_order_relaxed) != 0) wake();
  }
  virtual void wake() = 0;

  const std::span<NotifyCell> cells_;  // the peer's
  const Doorbell doorbell_;
  const PeerTable& peers_;
  const Rank peer_rank_;
  PeerCounters& counters_;
  bool is_closed_ = false;
};

// A lane's notify(), by the shortest way that the lane has.
class Notifier {
 public:
  explicit Notifier(Lane& lane) : lane_(lane), cells_(lane.mapped_cells()) {}

  Status notify(const Notification& notification) {
    if (cells_ != nullptr && cells_->try_notify(notification)) return Status::ok();
    return lane_.notify(notification, nullptr);
  }

 private:
  Lane& lane_;
  MappedCells* cells_;  // the lane's; null: it can't
};

}  // namespace dunlin::transport
