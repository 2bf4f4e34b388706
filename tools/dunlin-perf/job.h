// Job: this process's part of the measuring job: its bootstrap, fabric, place on the cores, and the
// way in which it polls. Owner thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/wait.h"
#include "tools/dunlin-perf/options.h"
#include "tools/dunlin-perf/plan.h"
#include "transports/fabric.h"

namespace dunlin::perf {

class Job {
 public:
  // Binds rank r to core r where the host has a core for each of its ranks, opens the fabric.
  static Result<std::unique_ptr<Job>> open(const Options& options, Config config,
                                           std::unique_ptr<Bootstrap> bootstrap);

  transport::Fabric& fabric() { return *fabric_; }
  Rank rank() const { return bootstrap_->rank(); }
  int size() const { return bootstrap_->size(); }
  bool is_root() const { return rank() == Rank(0); }
  const Config& config() const { return config_; }
  bool spins() const { return spins_; }
  // "spin", or "wait" with what is configured.
  std::string wait_policy() const;

  // Returns once `ready()` is true; progresses the fabric in between. Fails when `peer` dies, and
  // at the configured deadline.
  template <typename Ready>
  Status await(Rank peer, const char* what, Ready&& ready) {
    return await(peer, what, config_.deadline, ready);
  }
  template <typename Ready>
  Status await(Rank peer, const char* what, Duration timeout, Ready&& ready) {
    if (spins_) return poll(peer, what, timeout, ready);
    return fabric_->wait([ready]() mutable { return ready() ? Status::ok() : Status::busy(); },
                         [&] {
                           return std::vector<transport::Awaited>{{peer, what}};
                         },
                         timeout);
  }
  // The same without ever falling asleep: for what raises no event, as a plain put.
  template <typename Ready>
  Status poll(Rank peer, const char* what, Duration timeout, Ready&& ready);
  // Posts until the lane isn't busy.
  template <typename Operation>
  Status post(Rank peer, Operation&& operation) {
    Status status = operation();
    if (!status.is_busy()) return status;
    DUNLIN_TRY(await(peer, "room to post", [&] {
      status = operation();
      return !status.is_busy();
    }));
    return status;
  }

  // Returns when all ranks have called it, and progresses the fabric until then: what a peer has
  // not completed may need it. Only then may a rank go. Collective.
  Status finish();

  // Collective: what rank 0 gave.
  Result<std::uint64_t> tell(std::uint64_t value);
  // Collective: repetitions of the next chunk. By number, every rank knows by itself; by time,
  // rank 0 tells the others.
  Result<std::uint64_t> next_chunk(const Plan& plan, Pacer& pacer);
  // Collective: on rank 0 what each of `ranks` gave, empty elsewhere.
  Result<std::vector<std::string>> gather(const std::vector<Rank>& ranks, const std::string& value);
  // Every `step`-th rank, from 0 on.
  std::vector<Rank> ranks(int step = 1) const;

 private:
  Job() = default;
  Status start(const Options& options);
  Status bind() const;
  Status check(Rank peer, const char* what, Duration timeout, TimePoint& began) const;

  // Polls between two looks at the clock and at the peer's life.
  static constexpr long kPollsPerCheck = 1 << 14;

  SteadyClock clock_;
  Config config_;
  std::unique_ptr<Bootstrap> bootstrap_;
  std::unique_ptr<transport::Fabric> fabric_;
  bool spins_ = false;
  int gathers_ = 0;
  int tellings_ = 0;
};

template <typename Ready>
Status Job::poll(Rank peer, const char* what, Duration timeout, Ready&& ready) {
  TimePoint began{};
  for (long polls = 1;; ++polls) {
    fabric_->progress();
    if (ready()) return Status::ok();
    if (spins_) {
      cpu_relax();
    } else {
      sched_yield();
    }
    if (polls % kPollsPerCheck == 0) DUNLIN_TRY(check(peer, what, timeout, began));
  }
}

}  // namespace dunlin::perf
