// Fences keep a rank that is gone from writing into the memory of others.
//
// A rank that was declared dead may still run, and what it has sent may still be on its way. So
// a rank that is about to act in its place, as the next holder of a mutex, asks for a fence first.
// The coordinator then asks the ranks whose memory is concerned to revoke the access of the rank
// that is gone. It does so only when it counts that rank as gone itself.
//
// The class also says whether this rank is cut off: the others may count it as dead. A rank that is
// cut off closes its lanes and holds no mutex.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin {

class Fences {
 public:
  // Pass a request or a confirmation to the coordinator.
  struct Sender {
    std::function<void(std::uint64_t number, Rank gone, std::vector<Rank> owners)> ask;
    std::function<void(Rank gone)> confirm;
  };
  explicit Fences(Sender sender) : sender_(std::move(sender)) {}

  // Asks for a fence around `gone` for the memory of `owners`. Never blocks. Returns a number for
  // is_done(). If the coordinator is gone, the fence is never done, and check_coordinator() says
  // so. Any thread, as all methods.
  std::uint64_t ask(Rank gone, std::span<const Rank> owners);
  // Returns true once no write of the rank can land in the memory of the owners any more. Owners
  // that are gone do not count. Once it has returned true, the number is void.
  bool is_done(std::uint64_t number);
  // Ok while the coordinator can make fences; after its end, why it cannot.
  Status check_coordinator() const;

  // A guard is an object, such as a fabric, through which peers can write into this process's
  // memory. `wake` tells it that due() or is_cut_off() may have changed, or that a fence may be
  // done. The guard calls confirm() when nothing that the peer has posted can land any more. `wake`
  // must be short and must not call this object. Without a guard, no peer can write here.
  int add_guard(std::function<void()> wake);
  // Confirms everything that the guard has not confirmed, because nothing can land after its end.
  void remove_guard(int guard);
  // Costs one load.
  bool has_due() const { return due_count_.load(std::memory_order_acquire) != 0; }
  std::vector<Rank> due(int guard) const;
  void confirm(int guard, Rank gone);

  // Whether this rank may no longer act as a member of the job, because the others may count it as
  // dead. Once true, it stays true. Costs one load.
  bool is_cut_off() const { return is_cut_off_.load(std::memory_order_acquire); }
  // The reason why this rank is cut off; ok if it is not.
  Status check() const;

  // Only the bootstrap calls these.
  void on_revoke(Rank gone);
  void on_fenced(std::uint64_t number);
  void cut_off(Status why);
  void lose_coordinator(Status why);

 private:
  Sender sender_;
  std::atomic<std::size_t> due_count_{0};  // of pairs in due_
  std::atomic<bool> is_cut_off_{false};
  mutable std::mutex mutex_;  // guards all members below
  std::uint64_t last_number_ = 0;
  std::set<std::uint64_t> done_;
  int last_guard_ = 0;
  std::map<int, std::function<void()>> guards_;
  std::map<Rank, std::set<int>> due_;  // the guards that have not confirmed yet
  Status why_;
  Status why_no_coordinator_;
};

}  // namespace dunlin
