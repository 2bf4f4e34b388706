// BarePingPong: the best that two processes of one host can do. Each writes a cache line of its own
// with plain release stores, which the other polls with acquire loads. It uses nothing of Dunlin's
// data path. Owner thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "runtime/memory/region.h"
#include "tools/dunlin-perf/job/job.h"

namespace dunlin::perf {

class BarePingPong {
 public:
  // Collective over both ranks; `leads` is true on one of them. Returns kUnavailable when they
  // cannot share memory.
  static Result<std::unique_ptr<BarePingPong>> create(Job& job, Rank peer, bool leads);

  Status send() {
    own_->store(++sent_, std::memory_order_release);  // pairs with the peer's receive()
    return Status::ok();
  }
  Status receive() {
    const std::uint64_t wanted = ++received_;
    const long polls_per_check = job_.spins() ? kSpinsPerCheck : kYieldsPerCheck;
    for (long polls = 1;; ++polls) {
      if (theirs_->load(std::memory_order_acquire) >= wanted) return Status::ok();
      job_.pause(polls);
      if (polls % polls_per_check == 0) DUNLIN_TRY(check());
    }
  }

 private:
  struct Page;
  static constexpr long kSpinsPerCheck = 1 << 14;
  static constexpr long kYieldsPerCheck = 1 << 6;

  BarePingPong(Job& job, Rank peer) : job_(job), peer_(peer) {}
  Status offer();
  Status accept();
  void use(bool leads);
  // The peer may be late because its last operation before this needs the progress of this rank.
  Status check() {
    job_.fabric().progress();
    return job_.fabric().peers().check(peer_);
  }

  Job& job_;
  Rank peer_;
  std::shared_ptr<MemoryRegion> memory_;
  std::atomic<std::uint64_t>* own_ = nullptr;
  std::atomic<std::uint64_t>* theirs_ = nullptr;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace dunlin::perf
