// Bootstrap: how the processes of a job find one another.
//
// One interface behind all ways of starting: a launcher (dunlin-run, torchrun's variables, PMIx)
// tells rank, size and where the coordinator is; everything else goes over one authenticated TCP
// connection to that coordinator: keys and values, barriers, heartbeats, news of deaths, and the
// agreement on who is left. It is for start-up and for failures, never on the data path: calls
// block (with a deadline) and cost a round trip or more. Calls come from one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bootstrap/mail.h"
#include "runtime/bytes.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/peers.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin {

struct JobInfo {
  Rank rank;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host, as the launcher counts them
  int local_size = 1;
  std::string job_id{};
  std::string
      launcher{};  // "dunlin-run", "environment", "torchrun", "pmix", "single", "in-process"
};

// Who takes part, from some moment on. Epoch 0 is the whole job; each loss that the survivors agree
// on raises the epoch by one.
struct Membership {
  std::uint64_t epoch = 0;
  std::vector<Rank> members;  // ascending
};

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  Bootstrap() = default;
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  // Joins the job that the environment describes: DUNLIN_RANK and its kin; else torchrun's RANK,
  // WORLD_SIZE, MASTER_ADDR and MASTER_PORT; else PMIx when PMIX_RANK is set; else a job of one
  // process. Variables that only Dunlin or torchrun set come first because such a launcher may
  // itself run under srun or mpirun, whose variables are then inherited. Returns when every rank
  // has joined, or kDeadlineExceeded with a message that names the missing ranks after
  // config.bootstrap_timeout.
  static Result<std::unique_ptr<Bootstrap>> join(const Config& config,
                                                 const Environment& environment);

  virtual const JobInfo& job() const = 0;
  Rank rank() const { return job().rank; }
  int size() const { return job().size; }

  // Life of the peers; owned by the bootstrap, valid as long as it is.
  virtual PeerTable& peers() = 0;

  // Letters between this rank and others; owned by the bootstrap.
  virtual Mail& mail() = 0;

  // Publishes a value under a key that nobody published before (kAlreadyExists otherwise).
  virtual Status publish(std::string_view key, std::span<const std::byte> value) = 0;
  // Waits until somebody has published the key. kDeadlineExceeded names the key.
  virtual Result<Bytes> lookup(std::string_view key, Duration timeout) = 0;

  // Returns when all present members of the current epoch have called it with this name; after that
  // the name can be used again. kDeadlineExceeded names those who have not; kPeerDead names who
  // died.
  virtual Status barrier(std::string_view name, Duration timeout) = 0;

  // What the thread that waits in a call does meanwhile, some thousand times a second, as peers may
  // need this process's progress; the fabric adds its own. Calls from within a chore don't wait:
  // look-ups find nothing (kDeadlineExceeded), others are refused (kInternal).
  virtual int add_chore(std::function<void()> chore) = 0;
  virtual void remove_chore(int chore) = 0;

  // After a loss: every survivor calls it; the coordinator answers all of them with the same new
  // membership as soon as each rank that it still counts as present has called.
  virtual Result<Membership> reform(Duration timeout) = 0;
  virtual Membership membership() const = 0;

  // Says good-bye, so that the others don't take the end of this process for a death. Called by the
  // destructor; calling it earlier is for programs that end without unwinding. Where this process
  // runs the job's coordinator (rank 0 without dunlin-run), it stays for the others until they have
  // left or config.deadline is over.
  virtual void leave() noexcept = 0;
};

// A job whose ranks are threads of this process (tests, embedding): `size` bootstraps that share
// their keys in memory. kill() on the group makes a rank dead for all others.
class InProcessJob {
 public:
  explicit InProcessJob(int size, std::string launcher = "in-process");
  ~InProcessJob();
  // The bootstrap of one rank: once per rank, null the second time. It may outlive this object;
  // ranks that were never asked for leave the job with it.
  std::unique_ptr<Bootstrap> bootstrap(Rank rank);
  // Makes the rank dead for all others; its own calls fail from now on.
  void kill(Rank rank, std::string reason);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the bootstraps, which may live longer
  std::vector<std::unique_ptr<Bootstrap>> unclaimed_;
};

}  // namespace dunlin
