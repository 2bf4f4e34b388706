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
    for (long polls = 1;; ++polls) {
      if (partners_->load(std::memory_order_acquire) >= wanted) return Status::ok();
      if (job_.spins()) {
        cpu_relax();
      } else {
        sched_yield();
      }
      if (polls % kPollsPerCheck == 0) DUNLIN_TRY(job_.fabric().peers().check(partner_));
    }
  }

 private:
  struct Page;
  static constexpr long kPollsPerCheck = 1 << 14;

  BarePingPong(Job& job, Rank partner) : job_(job), partner_(partner) {}
  Status offer();
  Status accept();
  void use(bool leads);

  Job& job_;
  Rank partner_;
  std::shared_ptr<MemoryRegion> memory_;
  std::atomic<std::uint64_t>* own_ = nullptr;
  std::atomic<std::uint64_t>* partners_ = nullptr;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace dunlin::perf
