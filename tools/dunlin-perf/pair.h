// Pair: two ranks that measure against each other (0 and 1, 2 and 3, ...), with a region of each
// that the other puts into, notification cells, and the bare limit between them. The even rank
// leads: it begins, times and reports. Owner thread only.
#pragma once

#include <memory>
#include <string>

#include "tools/dunlin-perf/bare.h"
#include "tools/dunlin-perf/job.h"

namespace dunlin::perf {

class Pair {
 public:
  // Collective over both. `bytes`: of the largest message.
  static Result<std::unique_ptr<Pair>> create(Job& job, std::size_t bytes);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  Job& job() { return job_; }
  bool leads() const { return leads_; }
  Rank partner() const { return partner_; }
  // Null where the two share no memory.
  BarePingPong* bare() { return bare_.get(); }

  transport::Lane& lane() { return link_->data(); }
  // Memory to put from, and where the partner's puts land.
  transport::LocalRegion& source() { return *source_; }
  transport::LocalRegion& target() { return *target_; }
  transport::RemoteRegion& remote() { return *remote_; }

  // Returns when the lane's flush has completed.
  Status flush(transport::Visibility visibility);
  // A notification with the next number into the partner's cell, as put_notify() takes it.
  transport::Notification next_notification() {
    transport::Notification next;
    next.id = partners_cell_;
    next.sequence = ++sent_;
    return next;
  }
  // Sends one.
  Status notify(std::uint64_t tag = 0);
  // Waits for the partner's next one.
  Status await_notification() { return await_notifications(1); }
  // For that many of them.
  Status await_notifications(std::uint64_t count) {
    const std::uint64_t wanted = received_ += count;
    const transport::NotifyBoard& board = job_.fabric().board();
    return job_.await(partner_, "a notification", [&] { return board.sequence(cell_) >= wanted; });
  }
  // What the leader gave. The partner's call returns first, so that it is there when the leader
  // begins.
  Result<std::uint64_t> agree(std::uint64_t leaders);
  // Returns when both have called it and what this rank put is visible to the partner.
  Status sync();

 private:
  explicit Pair(Job& job);
  Status start(std::size_t bytes);
  Status exchange();

  Job& job_;
  bool leads_;
  Rank partner_;
  transport::Link* link_ = nullptr;
  std::unique_ptr<transport::LocalRegion> source_;
  std::unique_ptr<transport::LocalRegion> target_;
  std::unique_ptr<transport::RemoteRegion> remote_;
  std::unique_ptr<BarePingPong> bare_;
  transport::NotifyId cell_{};
  transport::NotifyId partners_cell_{};
  transport::Completion flushed_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace dunlin::perf
