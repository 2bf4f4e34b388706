// Job: this process's membership in a job, which is a set of processes that communicate.
//
//   DUNLIN_ASSIGN(auto job, dunlin::Job::join());
//   std::printf("rank %d of %d\n", job.rank().value(), job.size());
//   ...
//   DUNLIN_TRY(job.leave());
//
// Objects that communicate are made from a job and belong to it, except Endpoint and Connection
// (endpoint.h). Objects of a job keep its resources alive for as long as they need them, so that
// the order of destruction doesn't matter on one rank. It matters between ranks: destroy an object
// only when all ranks that share it are done with it, for example after barrier() or leave().
//
// Threads: a job and everything made from it belong to one thread at a time, the owner thread.
// Another thread may become the owner if a lock orders the calls of the old owner before its own. A
// process may hold several jobs, each with an owner thread of its own.
//
// Progress: communication of this rank advances only inside calls. A rank that computes for a long
// time while its peers wait for it calls progress() now and then.
//
// Errors: no function throws, except std::bad_alloc. Every wait ends at a deadline and then says
// which ranks were waited for.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <dunlin/clock.h>
#include <dunlin/counters.h>
#include <dunlin/rank.h>
#include <dunlin/status.h>
#include <dunlin/trace.h>
#include <dunlin/types.h>

namespace dunlin {

struct JobState;

struct JobOptions {
  // Settings that replace those of the environment, by name: {"DUNLIN_TRANSPORTS", "shm"}.
  // `dunlin-info --config` lists all of them.
  std::map<std::string, std::string> settings{};
};

// The ranks that take part in the job since its start (epoch 0) or since a reform().
struct JobMembers {
  std::uint64_t epoch = 0;
  std::vector<Rank> ranks;  // ascending
};

class Job {
 public:
  // Joins the job that the environment describes: dunlin-run, torchrun and PMIx (mpirun, srun) set
  // it. A program that is started without a launcher is a job of one rank. Returns when every rank
  // has joined; kDeadlineExceeded names the missing ones after DUNLIN_BOOTSTRAP_TIMEOUT.
  // kInvalidArgument names a setting that is unknown or malformed.
  static Result<Job> join(const JobOptions& options = {});
  // A job whose ranks are threads of this process, for tests and embedding: element r is rank r.
  // The caller gives each job to a thread of its own, since collective calls block.
  static Result<std::vector<Job>> in_process(int size, const JobOptions& options = {});

  Job(Job&&) noexcept;
  Job& operator=(Job&&) noexcept;
  // Leaves at once. Ranks that still wait for this one get kPeerDead.
  ~Job();

  Rank rank() const;
  // Ranks are below this. In a job that may grow, it is the number of ranks that can ever take part
  // (dunlin-run --max-ranks), and members() lists those that do.
  int size() const;
  // Whether this process has joined a running job and is no member of it yet: it calls reform()
  // when it is ready (elastic.h).
  bool is_newcomer() const;
  // The number of this rank among the ranks of this host, and how many there are.
  int local_rank() const;
  int local_size() const;
  // The timeout of calls that take none (DUNLIN_DEADLINE).
  Duration deadline() const;
  TimePoint now() const;

  // Collective: returns when all members have called it. It costs a round trip over TCP: use it at
  // start-up and at the end, and Barrier (barrier.h) on the data path.
  Status barrier();
  Status barrier(Duration timeout);
  // Collective. Calls barrier(), and then leaves the job. After that, objects of the job can be
  // destroyed, and nothing else. If the barrier fails, leaves the job all the same, and returns the
  // barrier's error.
  Status leave();

  // Publishes a value for all ranks, under a key that no rank has published yet (kAlreadyExists).
  Status publish(std::string_view key, std::span<const std::byte> value);
  // Waits until some rank has published the key.
  Result<Bytes> lookup(std::string_view key, Duration timeout);
  // The same for a key that only `publisher` publishes. Returns kPeerDead at once if that rank has
  // died or left without having published it.
  Result<Bytes> lookup_from(Rank publisher, std::string_view key, Duration timeout);

  // Advances all communication of this rank; returns how many things happened. Never blocks.
  std::size_t progress();
  // Gives progress until `ready()` returns anything but busy, and returns that. `ready` doesn't
  // block. `peer` and `what` say what the caller waits for; Rank() stands for no peer in
  // particular. Returns kPeerDead if the peer dies, and kDeadlineExceeded or kPeerStalled after
  // `timeout`.
  template <std::invocable Ready>
  Status wait(Ready&& ready, Rank peer, const char* what, Duration timeout) {
    using Function = std::remove_reference_t<Ready>;
    const auto call = [](void* context) -> Status { return (*static_cast<Function*>(context))(); };
    return wait_for(call, const_cast<std::remove_const_t<Function>*>(&ready), peer, what, timeout);
  }

  // ok while the rank takes part; kPeerDead once it has died or left.
  Status check(Rank rank) const;
  JobMembers members() const;
  // Agrees on the new members. Call it after a death, or when changes_before() has returned true.
  // It is collective over the members that are still present and the newcomers that are ready, and
  // all of them get the same new members.
  Result<JobMembers> reform(Duration timeout);

  // For jobs that may grow and shrink (elastic.h): whether the members change before this step,
  // since newcomers are ready or a member is to leave. Each member calls it before each step of its
  // work, with the step's number; the numbers ascend within an epoch. Returns true on all members
  // before the same step, which none of them has begun. It costs no message while nothing is to
  // change.
  Result<bool> changes_before(std::uint64_t step);
  // This rank is to leave between two steps.
  Status retire();

  // Says which transport connects this rank with a peer, and why others don't. Connects if need be.
  std::string explain(Rank peer);
  const PeerCounters& counters(Rank peer) const;
  // Null unless DUNLIN_TRACE names a file. Valid for as long as the job.
  Trace* trace();
  // The program's own loop begins its next step, which has this number. The flight record of this
  // rank then tells how long its steps take, and `dunlin-top` which ranks are slow.
  void begin_step(std::uint64_t number);

 private:
  friend struct Internal;
  explicit Job(std::shared_ptr<JobState> state);
  Status wait_for(Status (*ready)(void*), void* context, Rank peer, const char* what,
                  Duration timeout);

  // Shared with the objects that are made from the job, which may outlive it.
  std::shared_ptr<JobState> state_;
};

}  // namespace dunlin
