// BareLimit: what two processes of one host can do at best: a cache line each, written by one and
// polled by the other with plain release stores and acquire loads. Nothing of Dunlin's data path is
// in it. Owner thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "runtime/memory/region.h"
#include "tools/dunlin-perf/job.h"

namespace dunlin::perf {

class BarePingPong {
 public:
  // Collective over both ranks; `leads` on one of them. kUnavailable when they don't share memory.
  static Result<std::unique_ptr<BarePingPong>> create(Job& job, Rank partner, bool leads);

  Status send() {
    own_->store(++sent_, std::memory_order_release);  // pairs with the partner's receive()
    return Status::ok();
  }
  Status receive() {
    const std::uint64_t wanted = ++received_;
    const long polls_per_check = job_.spins() ? kSpinsPerCheck : kYieldsPerCheck;
    for (long polls = 1;; ++polls) {
      if (partners_->load(std::memory_order_acquire) >= wanted) return Status::ok();
      if (job_.spins()) {
        cpu_relax();
      } else {
        sched_yield();
      }
      if (polls % polls_per_check == 0) DUNLIN_TRY(check());
    }
  }

 private:
  struct Page;
  static constexpr long kSpinsPerCheck = 1 << 14;
  static constexpr long kYieldsPerCheck = 1 << 6;

  BarePingPong(Job& job, Rank partner) : job_(job), partner_(partner) {}
  Status offer();
  Status accept();
  void use(bool leads);
  // The partner may be late because its last operation before this needs our progress.
  Status check() {
    job_.fabric().progress();
    return job_.fabric().peers().check(partner_);
  }

  Job& job_;
  Rank partner_;
  std::shared_ptr<MemoryRegion> memory_;
  std::atomic<std::uint64_t>* own_ = nullptr;
  std::atomic<std::uint64_t>* partners_ = nullptr;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace dunlin::perf
