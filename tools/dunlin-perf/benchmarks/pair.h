// Pair: two ranks that measure against each other (0 and 1, 2 and 3, ...). Each has a memory region
// for the puts of its peer and a notification cell; the bare limit lies between them. The even rank
// leads: it begins, times and reports. Owner thread only.
#pragma once

#include <memory>
#include <string>

#include "tools/dunlin-perf/benchmarks/bare.h"
#include "tools/dunlin-perf/job/job.h"

namespace dunlin::perf {

class Pair {
 public:
  // `bytes`: the size of the largest message. Collective over both ranks.
  static Result<std::unique_ptr<Pair>> create(Job& job, std::size_t bytes);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  Job& job() { return job_; }
  bool leads() const { return leads_; }
  Rank peer() const { return peer_; }
  // Null unless has_limit().
  BarePingPong* bare() { return bare_.get(); }

  // Whether the bare limits of shared memory, memcpy and the cache-line ping-pong, are limits of
  // this pair, which is so over shm.
  bool has_limit() const { return job_.has_limit(peer_); }

  transport::Lane& lane() { return link_->data(); }
  // Memory from which this rank puts, and where the puts of the peer land.
  transport::LocalRegion& source() { return *source_; }
  transport::LocalRegion& target() { return *target_; }
  transport::RemoteRegion& remote() { return *remote_; }

  // Returns when the lane's flush has completed.
  Status flush(transport::Visibility visibility);
  // Returns a notification for the cell of the peer, with the next sequence number.
  transport::Notification next_notification() {
    transport::Notification next;
    next.id = peer_cell_;
    next.sequence = ++sent_;
    return next;
  }
  // Sends the next notification.
  Status notify(std::uint64_t tag = 0);
  // Waits for the next notification of the peer.
  Status await_notification() { return await_notifications(1); }
  // Waits for that many of them.
  Status await_notifications(std::uint64_t count) {
    const std::uint64_t wanted = received_ += count;
    const transport::NotifyBoard& board = job_.fabric().board();
    return job_.await(peer_, "a notification", [&] { return board.sequence(cell_) >= wanted; });
  }
  // Returns the argument of the leader. The call of its peer returns first, so that the peer is
  // ready when the leader begins.
  Result<std::uint64_t> agree(std::uint64_t leaders);
  // Returns when both ranks have called it and what this rank has put is visible to the peer.
  Status sync();
  // The last call on both ranks: they give up the memory of their peers, which may then be freed.
  // The driver of a GPU requires this order.
  Status finish();

 private:
  explicit Pair(Job& job);
  Status start(std::size_t bytes);
  Status exchange();

  Job& job_;
  bool leads_;
  Rank peer_;
  transport::Link* link_ = nullptr;
  std::unique_ptr<transport::LocalRegion> source_;
  std::unique_ptr<transport::LocalRegion> target_;
  std::unique_ptr<transport::RemoteRegion> remote_;
  std::unique_ptr<BarePingPong> bare_;
  transport::NotifyId cell_{};
  transport::NotifyId peer_cell_{};
  transport::Completion flushed_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace dunlin::perf
