// Job: this rank of the measuring job, with its bootstrap, its fabric, its core, and the way in
// which it polls. Owner thread only.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core_claims.h"
#include "runtime/flight/recorder.h"
#include "runtime/wait.h"
#include "tools/dunlin-perf/benchmarks/plan.h"
#include "tools/dunlin-perf/job/courtesy.h"
#include "tools/dunlin-perf/job/gpu.h"
#include "tools/dunlin-perf/options/options.h"
#include "transports/fabric.h"

namespace dunlin::perf {

// The GPU whose memory a rank measures.
struct GpuOfRank {
  int rank = 0;
  int number = 0;
  std::string name;
  std::string pci_bus_id;
};

class Job {
 public:
  // Opens the fabric. Binds the ranks of a host to cores of their own when it has enough that no
  // other job has taken.
  static Result<std::unique_ptr<Job>> open(const Options& options, Config config,
                                           std::unique_ptr<Bootstrap> bootstrap);

  transport::Fabric& fabric() { return *fabric_; }
  Rank rank() const { return bootstrap_->rank(); }
  int size() const { return bootstrap_->size(); }
  bool is_root() const { return rank() == Rank(0); }
  const Config& config() const { return config_; }
  bool spins() const { return spins_; }
  // What a loop does after its `polls`-th poll: spins without regard for others (--poll spin),
  // spins where nothing else wants the core (the default), or yields.
  void pause(long polls) {
    if (poll_ == Poll::kSpin) return cpu_relax();
    if (spins_) return courtesy_.pause(polls);
    sched_yield();
  }
  // Whether what two processes can do in shared memory is the limit of the transport to this peer.
  bool has_limit(Rank peer) const { return fabric_->transport_of(peer) == "shm"; }
  // "spin", or "wait:" with the configured way of waiting.
  std::string wait_policy() const;

  // The GPU whose memory this rank measures; null: the memory is that of the host.
  MeasuredGpu* gpu() { return gpu_.get(); }
  // Whether allocate() has returned memory of the program.
  bool is_wrapped() const { return !wrapped_.empty(); }
  // On rank 0: the GPU of each rank. Empty when the memory is that of the host.
  const std::vector<GpuOfRank>& gpus() const { return gpus_; }
  // Allocates memory of the kind that is measured, and registers it.
  Result<std::unique_ptr<transport::LocalRegion>> allocate(std::size_t size);

  // Returns when `ready()` is true, and calls progress() of the fabric until then. Fails when
  // `peer` dies and at the configured deadline.
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
  // The same without sleeping, for operations that cause no event, such as a plain put.
  template <typename Ready>
  Status poll(Rank peer, const char* what, Duration timeout, Ready&& ready);
  // Repeats the operation until the lane is not busy.
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

  // Returns when all ranks have called it. Until then it calls progress() of the fabric, which
  // outstanding operations of a peer may need. A rank may not leave the job before. Collective.
  Status finish();

  // Returns the argument of rank 0. Collective.
  Result<std::uint64_t> tell(std::uint64_t value);
  // Returns the repetitions of the next chunk. When a duration is given, rank 0 decides and tells
  // the others; a number of iterations every rank knows by itself. Collective.
  Result<std::uint64_t> next_chunk(const Plan& plan, Pacer& pacer);
  // Returns on rank 0 the argument of each of `ranks`, and nothing elsewhere. Collective.
  Result<std::vector<std::string>> gather(const std::vector<Rank>& ranks, const std::string& value);
  // Returns every `step`-th rank, from 0 on.
  std::vector<Rank> ranks(int step = 1) const;

 private:
  Job() = default;
  Status start(const Options& options);
  Status bind();
  Status gather_gpus();
  Status check(Rank peer, const char* what, Duration timeout, TimePoint& began) const;

  // Polls between two checks of the clock and of the peer.
  static constexpr long kPollsPerCheck = 1 << 14;

  SteadyClock clock_;
  Config config_;
  std::unique_ptr<Bootstrap> bootstrap_;
  MemoryChoice::Kind memory_ = MemoryChoice::Kind::kHost;
  std::deque<std::vector<std::byte>> wrapped_;  // --memory wrapped
  std::unique_ptr<MeasuredGpu> gpu_;
  std::vector<GpuOfRank> gpus_;
  std::unique_ptr<flight::Recorder> recorder_;  // null if nothing is recorded
  std::unique_ptr<transport::Fabric> fabric_;
  Poll poll_ = Poll::kAuto;
  bool spins_ = false;
  Courtesy courtesy_{clock_};
  std::optional<CoreClaims> claims_;  // the core that this rank is bound to
  int gathers_ = 0;
  int tellings_ = 0;
};

template <typename Ready>
Status Job::poll(Rank peer, const char* what, Duration timeout, Ready&& ready) {
  TimePoint began{};
  for (long polls = 1;; ++polls) {
    fabric_->progress();
    if (ready()) return Status::ok();
    pause(polls);
    if (polls % kPollsPerCheck == 0) DUNLIN_TRY(check(peer, what, timeout, began));
  }
}

}  // namespace dunlin::perf
