// Session: everything that one process of a job owns (configuration, clock, bootstrap, fabric,
// communicators), behind one object. The C interface and the Python modules are thin layers over
// it.
//
// Threads: any. One lock protects all use of the fabric; a waiting thread gives it up whenever
// another thread wants it. Lock order: never hold the GIL and the session lock together.
//
// A resident is an object in the session's fabric that is not a communicator (operation.h), such as
// a window. One of the waiting threads advances all operations and residents. While no thread
// waits, the optional background thread advances the outstanding operations, and the residents that
// peers need. It sleeps while there is nothing to advance, and while no data arrive.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/session/operation.h"
#include "bindings/session/turn_lock.h"
#include "collectives/communicator/communicator.h"
#include "runtime/flight/recorder.h"
#include "runtime/trace.h"

namespace dunlin::binding {

class GpuCollectives;

// A communicator of the session. A handle stays valid after the release of its communicator. Calls
// on it then return kClosed.
struct CommunicatorSlot {
  std::unique_ptr<collective::Communicator> communicator;  // null: released
  std::string name;  // the names of those that are split off begin with it
  int splits = 0;    // calls of split() for it
  Status failure;    // kPeerDead after a member's death; every later call returns it
  // kClosed once a call could not be made at this rank. Every later call returns this status,
  // because it would not match the calls of the other members. Earlier calls continue.
  Status missed;
  int rank = 0;
  int size = 1;
  // Its calls on memory of GPUs (gpu_collectives.h). Null before the first one. Under the session's
  // lock.
  std::shared_ptr<GpuCollectives> gpu;
  Status gpu_failure;  // kUnavailable, at all members alike, if they can't make such calls
};
using CommunicatorHandle = std::shared_ptr<CommunicatorSlot>;

// Memory from Session::allocate(). It may be used as long as `owner` is held, also after free(),
// which makes it ordinary memory.
struct SharedMemory {
  std::span<std::byte> bytes;
  std::shared_ptr<MemoryRegion> owner;
};

// How a process leaves its job: when all members leave, or at once.
enum class Ending { kTogether, kAlone };

class Session {
 public:
  // A waiting thread calls it without the lock: about every 5 ms while it polls, and about every 50
  // ms while it sleeps. Any status but ok ends the wait, which returns it. The operation continues.
  using Interrupt = std::function<Status()>;
  struct Options {
    bool background_progress = true;
  };

  // Joins the job that the process's environment describes (Bootstrap::join), and makes the
  // communicator of all ranks. Blocks until all ranks have joined, for DUNLIN_BOOTSTRAP_TIMEOUT and
  // then DUNLIN_DEADLINE at most.
  static Result<std::unique_ptr<Session>> create(Options options);
  // Does the same with the given environment.
  static Result<std::unique_ptr<Session>> create(const Environment& environment, Options options);
  // Calls shutdown(Ending::kAlone) if there was no shutdown.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Starts the background thread if there is none.
  Status serve_in_background();

  // Leaves the job and releases everything. kTogether: first waits, for `timeout` at most, until
  // all outstanding operations are over and all members have called shutdown(), and returns the
  // error if that fails. Calls in progress in other threads, and all later ones, fail with kClosed.
  // Only the first call does anything. Within a wait of the same thread, for example in a signal
  // handler, it does nothing and returns kInvalidArgument.
  Status shutdown(Ending ending, Duration timeout);

  const JobInfo& job() const { return job_; }
  const Config& config() const { return config_; }
  // The communicator of members().
  const CommunicatorHandle& world() const { return world_; }

  // How members change (session_changes.cc, runtime/bootstrap/bootstrap.h). Processes may join an
  // elastic job while it runs.
  bool is_elastic() const { return job_.founders < job_.size; }
  // This process has joined a running job, and has no model of it yet (share_model()). Before its
  // first reform() it is its only member.
  bool is_newcomer() const { return is_newcomer_; }
  // The ranks that take part, ascending: at first, those that start the job.
  const std::vector<Rank>& members() const { return members_; }
  // This rank is to leave at the next change. Signal handlers may call this.
  void retire() { is_retiring_ = true; }
  // Whether the members change before `step`, or, without one, before this member's end. With
  // `in_step`, all change before the same step, which none has begun. Without it, each calls
  // reform() between two steps of its own.
  Result<bool> changes_before(std::optional<std::uint64_t> step, bool in_step);
  // Collective over the members, where changes_before() says so or after a death; over founders
  // also at the start. A newcomer calls it when it is ready. Makes world() of the new members.
  // Other communicators, and residents of the former members, are closed: later calls of them
  // return kClosed. False: this rank has retired; the caller calls shutdown(Ending::kAlone).
  // kPeerDead if a member dies meanwhile: call it again. No other thread may be in a call.
  Result<bool> reform(Duration timeout);
  // Collective over the members, once after each reform(): newcomers get the model of another
  // member by one-sided reads, and its version. Returns the version.
  Result<std::uint64_t> share_model(std::span<std::byte> model, std::uint64_t version,
                                    Duration timeout);
  // Returns kUnavailable in a job whose members may change or have, as `what` needs all its ranks.
  Status check_fixed(std::string_view what) const;

  // Collective, as in communicator.h. No other call on the parent may overlap it. Other threads may
  // make other calls meanwhile; they wait only if the parent is a communicator of GPUs. A member
  // that cannot prepare its part is an error at all members, but for communicators of GPUs. It
  // takes at most two config().deadlines to find out that a member does not come. release() waits
  // until all operations of a communicator of split() are over at all members, and drops it.
  Result<CommunicatorHandle> split(CommunicatorHandle parent, int color, int key);
  // Makes a communicator of all ranks with the memory of a GPU, which `gpu` numbers in this
  // process. Collective. release() drops it.
  Result<CommunicatorHandle> on_gpu(int gpu);
  Status release(const CommunicatorHandle& communicator, const Interrupt& interrupt);
  // Makes a communicator of `members`, whose order gives its ranks. Collective over them alone. All
  // members pass the same name, which was never used before.
  //   1. form() calls meet(interrupt) without the lock. meet() returns when all members have called
  //      theirs, or soon after interrupt() has returned another status than ok.
  //   2. The members connect. Meanwhile form() calls check() without the lock, at intervals of at
  //      most the time that connecting has taken so far.
  // If meet() or check() returns another status than ok, form() ends and returns that status. Other
  // threads may form communicators meanwhile, in any order. `gpu`: see CommunicatorOptions.
  Result<CommunicatorHandle> form(std::string name, std::vector<Rank> members,
                                  const std::function<Status(const Interrupt& interrupt)>& meet,
                                  const Interrupt& check = {}, std::optional<int> gpu = {});
  // Collective, but never blocks. A communicator of form() or split() is dropped once all members
  // have called this, in shutdown() at the latest. No operation of it may be in progress at this
  // rank. Destructors may call this, as it takes only a lock that no thread holds for long.
  void release_later(const CommunicatorHandle& communicator);
  // Collective. free() waits for this rank's outstanding operations of the communicator.
  Result<SharedMemory> allocate(const CommunicatorHandle& communicator, std::size_t bytes,
                                const Interrupt& interrupt);
  Status free(const CommunicatorHandle& communicator, std::span<std::byte> memory,
              const Interrupt& interrupt);

  // Starts a call. While too many operations are outstanding, it waits for room, for `timeout` at
  // most (default: config().deadline). If there is no room by then, the call is not made, and later
  // calls on the communicator return kClosed. An interrupt does not end the wait for room, because
  // the other members rely on this call. It limits the rest of that wait to config().deadline, and
  // `interrupted` gets its status unless it is null. `when_over` goes to
  // SessionOperation::when_over().
  Result<std::shared_ptr<SessionOperation>> start(const CommunicatorHandle& communicator,
                                                  const collective::Call& call,
                                                  const Interrupt& interrupt,
                                                  std::function<void()> when_over = {},
                                                  std::optional<Duration> timeout = std::nullopt,
                                                  Status* interrupted = nullptr);
  // Advances the session; kBusy until the operation is over, then its outcome.
  Status test(const std::shared_ptr<SessionOperation>& operation);
  // After kDeadlineExceeded, kPeerStalled and an interrupt, the operation continues.
  Status wait(const std::shared_ptr<SessionOperation>& operation, Duration timeout,
              const Interrupt& interrupt);
  // start(), then wait() for config().deadline. `unfinished`, unless it is null, gets the operation
  // if it continues after the wait.
  Status run(const CommunicatorHandle& communicator, const collective::Call& call,
             const Interrupt& interrupt, std::shared_ptr<SessionOperation>* unfinished = nullptr);

  // Calls `use(fabric)` under the lock. The other classes of this folder use it.
  template <typename Use>
  Status with_fabric(Use&& use) {
    const Turn turn(*this);
    DUNLIN_TRY(check_open());
    return use(*fabric_);
  }
  // Starts an operation that is not a communicator's: `make(fabric)` is called under the lock.
  using Make = std::function<Result<std::shared_ptr<SessionOperation>>(transport::Fabric&)>;
  Result<std::shared_ptr<SessionOperation>> start(const Make& make);
  Status run(const Make& make, Duration timeout, const Interrupt& interrupt,
             std::shared_ptr<SessionOperation>* unfinished = nullptr);
  // Ends an operation with this outcome, unless it is over.
  void abandon(const std::shared_ptr<SessionOperation>& operation, const Status& outcome);
  // Keeps `memory` until the operation is over, but not beyond shutdown(). The memory is then
  // dropped without the lock, because dropping an object of Python takes the GIL.
  // SessionOperation::hold() may drop its memory under the lock, so it is not for such objects.
  void keep_until_over(std::shared_ptr<SessionOperation> operation, std::shared_ptr<void> memory);
  // The name under which the present members make calls, which differs from that of former members:
  // a message that was sent before the members changed is not taken for a later call's. Needs the
  // lock.
  std::string name_of_epoch(std::string_view name) const;
  // Returns 1, 2, ...: the same number at all ranks if all call it in the same order.
  std::uint64_t next_number() {
    const Turn turn(*this);
    return ++last_number_;
  }
  // Adds a resident. It is advanced together with the operations, and closed by shutdown(), in the
  // reverse order of attach().
  using MakeResident = std::function<Result<std::shared_ptr<Resident>>(transport::Fabric&)>;
  Status attach(const MakeResident& make);
  // Closes a resident now. Does nothing if it isn't attached.
  void detach(const Resident& resident);

 private:
  // Holds the lock for a short time.
  class Turn {
   public:
    explicit Turn(Session& session) : session_(session) { session_.enter(); }
    ~Turn() { session_.leave(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Session& session_;
  };
  // Holds the lock for a call that may give it up in between. shutdown() waits for its end before
  // it destroys anything.
  class Stay;
  class Driven;
  struct KeptMemory {
    std::shared_ptr<SessionOperation> operation;
    std::shared_ptr<void> memory;
  };
  // A communicator of release_later(), what is detached with it, and the barrier in which all
  // members confirm it, if started.
  struct PendingRelease {
    CommunicatorHandle communicator;
    std::shared_ptr<Resident> staging;
    std::optional<collective::CollectiveRequest> barrier;
  };

  // Whether this thread is in a call of a session: in a signal handler during a wait, for example.
  static bool is_within_call();

  explicit Session(Config config) : config_(std::move(config)) {}
  Status join(const Environment& environment, Options options);
  Result<CommunicatorHandle> adopt(std::string name,
                                   std::unique_ptr<collective::Communicator> communicator,
                                   const Interrupt& check = {});
  // Collective over `witnesses`, which include the members: form(), after they have agreed that
  // each member has prepared its part.
  Result<CommunicatorHandle> form_together(std::string name, std::vector<Rank> members,
                                           std::optional<int> gpu, CommunicatorHandle witnesses,
                                           std::string_view what);
  void enter();
  void leave();
  void wake();
  // These need the lock:
  Status check_open() const;
  Status check(const CommunicatorHandle& communicator) const;
  Result<std::shared_ptr<SessionOperation>> post(const CommunicatorHandle& communicator,
                                                 const collective::Call& call,
                                                 const Interrupt& interrupt, Duration timeout,
                                                 Status& interrupted);
  Result<collective::CollectiveRequest> wait_for_room(const CommunicatorHandle& communicator,
                                                      const collective::Call& call,
                                                      const Interrupt& interrupt, Duration timeout,
                                                      Status& interrupted);
  Status post_and_drive(const CommunicatorHandle& communicator, const collective::Call& call,
                        const Interrupt& interrupt, std::shared_ptr<SessionOperation>& operation,
                        std::shared_ptr<void> memory = nullptr);
  Status connect(collective::Communicator& communicator, const Interrupt& check);
  Status run_inside(const CommunicatorHandle& communicator, const collective::Call& call,
                    const Interrupt& interrupt, std::shared_ptr<void> memory = nullptr);
  Status drive(const std::shared_ptr<SessionOperation>& operation, Duration timeout,
               const Interrupt& interrupt);
  Status drain(const CommunicatorSlot* communicator, Duration timeout, const Interrupt& interrupt);
  Status pause(const Interrupt& interrupt, TimePoint& last_interrupt);
  void advance_all();
  void advance_releases();
  void keep(std::shared_ptr<SessionOperation> operation);
  bool has_work() const;
  // The background thread.
  void serve();
  void stop_serving();
  Status wait_for_all_ranks(Duration timeout);
  bool is_member() const;
  Status meet(std::string_view name, Duration timeout);
  Status make_world();
  void close_epoch();
  Status name_death(Status failure);
  void release_all();

  Config config_;
  SteadyClock clock_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<flight::Recorder> recorder_;
  std::unique_ptr<Bootstrap> bootstrap_;
  JobInfo job_;
  std::unique_ptr<transport::Fabric> fabric_;
  CommunicatorHandle world_;
  std::vector<Rank> members_;
  bool is_newcomer_ = false;
  std::atomic<bool> is_retiring_{false};
  bool has_retired_ = false;  // the coordinator knows
  std::vector<CommunicatorHandle> communicators_;
  // Communicators that could not be formed. They are kept until the end, because members that don't
  // know of the failure yet may still write to their memory.
  std::vector<std::unique_ptr<collective::Communicator>> unformed_;

  TurnLock lock_;
  std::vector<std::shared_ptr<SessionOperation>> outstanding_;  // in progress, and no thread waits
  std::vector<std::shared_ptr<SessionOperation>> driven_;       // per waiting thread: its operation
  std::vector<KeptMemory> kept_;  // leave() drops the memory of operations that are over
  std::vector<std::shared_ptr<Resident>> residents_;
  std::vector<PendingRelease> pending_releases_;
  std::mutex new_releases_mutex_;
  // The releases that advance_releases() adds to pending_releases_; under new_releases_mutex_.
  std::vector<CommunicatorHandle> new_releases_;
  std::atomic<bool> has_releases_{false};  // whether either has some
  std::uint64_t last_number_ = 0;
  bool is_open_ = true;
  bool is_driven_ = false;  // a waiting thread advances everything
  int stays_ = 0;           // calls in progress that have a Stay

  std::mutex wake_mutex_;
  transport::Fabric* sleeper_ = nullptr;  // under wake_mutex_; the fabric that wake() wakes

  std::thread server_;
  std::mutex server_mutex_;
  std::condition_variable server_news_;
  bool has_work_ = false;  // under server_mutex_
  std::atomic<bool> stops_serving_{false};
  std::atomic<int> blocked_{0};  // threads in calls that advance everything themselves
};

}  // namespace dunlin::binding
