// Bootstrap: connects the processes of a job before any transport exists.
//
// A launcher (dunlin-run, torchrun, PMIx) gives each process its rank, the size of the job and the
// address of the coordinator. Everything else goes over one authenticated TCP connection per rank
// to that coordinator: keys and values, barriers, heartbeats, notices of deaths, and the agreement
// on the survivors. The bootstrap is for start-up and failures, not for data: its calls block until
// a deadline and cost a round trip or more. Calls must come from one thread at a time.
//
// A call that returns kDeadlineExceeded has given up what it asked for. During an outage of the
// connection, nothing of it happens later: what has not been sent yet is taken back, and the
// coordinator cancels what it has not answered. Only an answer that was on its way, or a request
// that had left this process just before the connection failed, may have taken effect: the value is
// published, the others have passed the barrier, or membership() tells of the agreement.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bootstrap/fences.h"
#include "runtime/bootstrap/mail.h"
#include "runtime/bytes.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/peers.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin {

struct JobInfo {
  Rank rank{};
  int size = 1;        // ranks are 0 to size - 1
  int founders = 0;    // ranks that start the job, from 0 on; those behind may join later. 0: all
  int local_rank = 0;  // number among the ranks of this host, as the launcher counts them
  int local_size = 1;
  // Ranks that run under the kernel of this one have other PID namespaces (containers).
  bool spans_pid_namespaces = false;
  std::string job_id{};
  std::string
      launcher{};  // "dunlin-run", "environment", "torchrun", "pmix", "single", "in-process"
};

// The ranks that take part. In epoch 0, those are the ranks that start the job. Each agreement
// (Bootstrap::reform) increases the epoch by one.
struct Membership {
  std::uint64_t epoch = 0;
  std::vector<Rank> members;  // ascending
};

using JobKey = std::array<std::byte, 32>;

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  Bootstrap() = default;
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  // Joins the job that the environment describes. DUNLIN_RANK and related variables have
  // precedence, then torchrun's RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, then PMIx when
  // PMIX_RANK is set. This order is needed because dunlin-run and torchrun may themselves run under
  // srun or mpirun, whose variables the processes inherit. Without any of them, the job is this
  // process. Returns when every rank has joined. After config.bootstrap_timeout, returns
  // kDeadlineExceeded with a message that names the missing ranks. Takes the job secret out of this
  // process's environment (Environment::hide_job_secret).
  static Result<std::unique_ptr<Bootstrap>> join(const Config& config,
                                                 const Environment& environment);

  virtual const JobInfo& job() const = 0;
  Rank rank() const { return job().rank; }
  int size() const { return job().size; }

  // The states of the peers. Owned by the bootstrap.
  virtual PeerTable& peers() = 0;

  // Short messages between this rank and others. Owned by the bootstrap.
  virtual Mail& mail() = 0;

  // Fences around ranks that are gone, and whether this rank is cut off itself. Owned by the
  // bootstrap.
  virtual Fences& fences() = 0;

  // A key that follows from the job's secret, the same for all ranks of this job. Transports prove
  // to one another by it that they belong to the job.
  virtual const JobKey& key() const = 0;

  // Publishes a value. kAlreadyExists when a rank has published the key before.
  virtual Status publish(std::string_view key, std::span<const std::byte> value) = 0;
  // Publishes a value without waiting for the coordinator. Errors are not reported. A chore may
  // call it.
  virtual Status post(std::string_view key, std::span<const std::byte> value) = 0;
  // The key of a rank's value, for a topic under which each rank publishes one.
  static std::string key_of(std::string_view topic, Rank rank);
  // This rank will never again ask for what was published as `topic` or as key_of(topic, any rank),
  // or gathered as `topic`. The coordinator forgets it once all users have said so. `users`: their
  // number, or 0 from a rank that does not know it. What a rank that dies or leaves has not
  // released stays until the job ends. Do not use a name again even so: ranks release it at
  // different times. Does not wait or report errors. A chore may call it.
  virtual void release(std::string_view topic, std::size_t users) = 0;
  // Waits until a rank has published the key. kDeadlineExceeded names the key.
  Result<Bytes> lookup(std::string_view key, Duration timeout) {
    return lookup_from(Rank(), key, timeout);
  }
  // The same for a key that only `publisher` publishes. kPeerDead, at once, when that rank is gone
  // and has not published it.
  virtual Result<Bytes> lookup_from(Rank publisher, std::string_view key, Duration timeout) = 0;
  // Looks up what each of `publishers` publishes under key_of(topic, that rank), in the order of
  // `publishers`: a round trip for each MiB, instead of one for each value. kPeerDead, at once,
  // when one of them is gone and has not published it. kDeadlineExceeded names a key that is
  // missing.
  virtual Result<std::vector<Bytes>> lookup_each(std::string_view topic,
                                                 std::span<const Rank> publishers,
                                                 Duration timeout) = 0;

  // Gathers a record of every rank of `group`, in the order of `group`; an empty group is the whole
  // job. Every rank of the group calls it with the same name, the same group and a record of the
  // same size; else kInvalidArgument. A name can be used once. All records together have at most 1
  // MiB. A call that has timed out may be repeated until this rank releases the name: the record of
  // the first call stays. kDeadlineExceeded names the missing ranks; kPeerDead, at once, when one
  // of them is gone. A gather costs one round trip, where lookups would cost one for each peer.
  virtual Result<Bytes> gather(std::string_view name, std::span<const Rank> group,
                               std::span<const std::byte> record, Duration timeout) = 0;
  // Contributes the record to a later gather() without waiting, as post() publishes a value.
  virtual Status contribute(std::string_view name, std::span<const Rank> group,
                            std::span<const std::byte> record) = 0;

  // Returns when all present members of the current epoch have called it with this name; then the
  // name can be used again. A process that has joined the running job is no member before its first
  // reform(). kDeadlineExceeded names the ranks that have not called; kPeerDead names the dead
  // ranks.
  virtual Status barrier(std::string_view name, Duration timeout) = 0;

  // Adds a function that a thread calls some thousand times a second while it waits in a call of
  // this class, because peers may need this process's progress. The fabric adds one. A chore may
  // call post() and use mail(). Its lookups and gathers return kDeadlineExceeded at once, and all
  // other calls return kInternal. Returns a number for remove_chore().
  virtual int add_chore(std::function<void()> chore) = 0;
  virtual void remove_chore(int chore) = 0;

  // Agrees on the members of the next epoch: after a death, or where changes_before() says so.
  // Every member calls it. When all members that are still present have called, the coordinator
  // answers all of them with the same new membership. A process that has joined the running job
  // calls it when it is ready to take part; it becomes a member at the next agreement, and asks for
  // one.
  virtual Result<Membership> reform(Duration timeout) = 0;
  virtual Membership membership() const = 0;

  // Whether the members change before this step, because processes have joined or members are to
  // leave. Each member of an elastic job calls it before each step of its work, with the step's
  // number, which ascends within an epoch, and before it ends, with ~0: from then on, they do not
  // change any more. It returns true on all members before the same step, which none has begun;
  // then each calls reform(), or leave() if it wants to go. Costs no message while nothing is to
  // change. Else it may wait for the answers of the others, which their monitor threads give, even
  // in a step. kDeadlineExceeded after `timeout`.
  virtual Result<bool> changes_before(std::uint64_t step, Duration timeout) = 0;
  // Whether all members have answered, so that they change. For programs without common steps: the
  // members call reform() then, each when it can.
  virtual bool is_change_wanted() const = 0;
  // This rank wants to leave between two steps, so that nothing of its work is lost. It asks for a
  // change, and calls leave() when changes_before() returns true.
  virtual Status retire() = 0;

  // Leaves the job, so that the other ranks do not take the end of this process for a death. The
  // destructor calls it; programs that end without unwinding call it themselves. When this process
  // runs the job's coordinator (rank 0 without dunlin-run), the call waits until all other ranks
  // have left, but not longer than config.deadline. During an outage of the connection, it waits
  // until the coordinator has been told, but not longer than config.reconnect_timeout.
  virtual void leave() noexcept = 0;
};

// A job whose ranks are threads of this process, for tests and embedding programs.
class InProcessJob {
 public:
  explicit InProcessJob(int size, std::string launcher = "in-process");
  // One that up to `size` - `founders` ranks may join later.
  InProcessJob(int size, int founders, std::string launcher = "in-process");
  ~InProcessJob();
  // Returns the bootstrap of one rank, and null when it has been taken before. A bootstrap may
  // outlive this object. Ranks that have not been taken leave the job when this object is
  // destroyed.
  std::unique_ptr<Bootstrap> bootstrap(Rank rank);
  // A rank that joins the running job; an error if none is free. One thread at a time.
  Result<std::unique_ptr<Bootstrap>> join();
  // Declares the rank dead to all other ranks. It is cut off, and its own calls fail from now on.
  void kill(Rank rank, std::string reason);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the bootstraps, which may live longer
  JobInfo job_;                   // of the rank that was made last
  std::vector<std::unique_ptr<Bootstrap>> unclaimed_;
};

}  // namespace dunlin
