// Runtime: everything that one process of a job owns (configuration, clock, bootstrap, fabric,
// communicators), for languages that don't keep such things apart. C and Python are thin layers
// over it.
//
// Any thread. All use of the fabric is under one lock; who waits gives it up whenever another
// thread wants it. A background thread, where it was asked for, moves operations on that nobody
// waits for, and residents that others need; it sleeps while there are none, or nothing comes, and
// stands aside while somebody waits, as waiting threads move everything on themselves.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/bindings/operation.h"
#include "collectives/bindings/turn_lock.h"
#include "collectives/communicator.h"
#include "runtime/trace.h"

namespace dunlin::binding {

// A communicator of the runtime. Handles stay valid, though useless, when it was released.
struct CommunicatorSlot {
  std::unique_ptr<collective::Communicator> communicator;  // null: released
  Status failure;  // the loss of a member, which every later call reports
  // That a call was not made here: a later one would meet another one of the others. Those that
  // were made go on.
  Status missed;
  int rank = 0;
  int size = 1;
};
using CommunicatorHandle = std::shared_ptr<CommunicatorSlot>;

// Memory from Runtime::allocate(). Whoever holds `owner` may use it, also when it has been freed:
// it is then memory like any other.
struct SharedMemory {
  std::span<std::byte> bytes;
  std::shared_ptr<MemoryRegion> owner;
};

// How a process leaves its job: when all members have come to their ends as well, or at once.
enum class Ending { kTogether, kAlone };

class Runtime {
 public:
  // Called at least every 50 ms or so by whoever waits, without the lock. Anything but ok ends the
  // wait, with that; what was waited for goes on.
  using Interrupt = std::function<Status()>;
  struct Options {
    bool background_progress = true;
  };

  // Joins the job that the process's environment describes (Bootstrap::join), and makes its
  // communicator of all ranks. Blocks until all ranks have come (DUNLIN_BOOTSTRAP_TIMEOUT,
  // DUNLIN_DEADLINE).
  static Result<std::unique_ptr<Runtime>> create(Options options);
  // The same with another environment.
  static Result<std::unique_ptr<Runtime>> create(const Environment& environment, Options options);
  // Leaves alone, where shutdown() was not called.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Has a background thread from now on, whatever the options were.
  void serve_in_background();

  // Ends everything and says good-bye to the peers. Together: waits, at most for `patience`, for
  // what is under way and until all members have come here, and returns why it could not. Calls
  // under way in other threads, and all later ones, fail with kClosed. Only the first call does
  // anything.
  Status shutdown(Ending ending, Duration patience);

  const JobInfo& job() const { return job_; }
  const Config& config() const { return config_; }
  const CommunicatorHandle& world() const { return world_; }

  // Collective, as in communicator.h. release() drops a communicator of split(), when all of its
  // operations are over at all members.
  Result<CommunicatorHandle> split(const CommunicatorHandle& parent, int color, int key);
  Status release(const CommunicatorHandle& communicator, const Interrupt& interrupt);
  // Collective over `members` alone, whose order is that of the communicator's ranks. The name is
  // the same on all of them, and was never used before. `meet()` is called without the lock, and
  // returns when all members have come to it, or soon after `interrupt()` is not ok any more. While
  // they connect then, anything but ok from `look()` ends that: it is called without the lock, at
  // the latest when connecting has lasted twice as long as at the call before. Other threads may
  // form others meanwhile, in any order.
  Result<CommunicatorHandle> form(std::string name, std::vector<Rank> members,
                                  const std::function<Status(const Interrupt& interrupt)>& meet,
                                  const Interrupt& look = {});
  // Collective, but never blocks: drops a communicator of form() or split(), of which nothing is
  // under way here, once all members have said so; at the latest with shutdown(). Takes no lock
  // that is held for long: also for destructors.
  void retire(const CommunicatorHandle& communicator);
  // Collective. free() waits for the operations of the communicator that are under way here.
  Result<SharedMemory> allocate(const CommunicatorHandle& communicator, std::size_t bytes,
                                const Interrupt& interrupt);
  Status free(const CommunicatorHandle& communicator, std::span<std::byte> memory,
              const Interrupt& interrupt);

  // Starts a call; while too many are under way, waits, for `patience` (none: config().deadline).
  // A call that finds no room by then is not made, and the communicator takes no later ones:
  // kClosed. As the others count on it, an interrupt doesn't end that wait (at most, it goes on for
  // config().deadline): `interrupted`, where it isn't null, gets what the interrupt said.
  // `when_over`: Operation::when_over().
  Result<std::shared_ptr<Operation>> start(const CommunicatorHandle& communicator,
                                           const collective::Call& call, const Interrupt& interrupt,
                                           std::function<void()> when_over = {},
                                           std::optional<Duration> patience = std::nullopt,
                                           Status* interrupted = nullptr);
  // kBusy until it is over; gives progress.
  Status test(const std::shared_ptr<Operation>& operation);
  // kDeadlineExceeded, kPeerStalled and an interrupt leave it under way.
  Status wait(const std::shared_ptr<Operation>& operation, Duration timeout,
              const Interrupt& interrupt);
  // start(), then wait() for config().deadline. `unfinished`, where it isn't null, gets an
  // operation that goes on though the wait has ended.
  Status run(const CommunicatorHandle& communicator, const collective::Call& call,
             const Interrupt& interrupt, std::shared_ptr<Operation>* unfinished = nullptr);

  // For what is built upon it. `use(fabric)` under the lock:
  template <typename Use>
  Status with_fabric(Use&& use) {
    const Turn turn(*this);
    DUNLIN_TRY(check_open());
    return use(*fabric_);
  }
  // Operations that aren't a communicator's: `make(fabric)`, under the lock, begins one.
  using Make = std::function<Result<std::shared_ptr<Operation>>(transport::Fabric&)>;
  Result<std::shared_ptr<Operation>> start(const Make& make);
  Status run(const Make& make, Duration timeout, const Interrupt& interrupt,
             std::shared_ptr<Operation>* unfinished = nullptr);
  // Ends an operation that nobody wants any more, with this outcome, unless it is over.
  void abandon(const std::shared_ptr<Operation>& operation, const Status& outcome);
  // Drops `memory` once the operation is over: without the lock, as it may be Python's, which
  // Operation::hold() isn't for; and at the latest within shutdown().
  void keep_until_over(std::shared_ptr<Operation> operation, std::shared_ptr<void> memory);
  // 1, 2, ...: the same at all ranks for what all make in the same order.
  std::uint64_t next_number() {
    const Turn turn(*this);
    return ++last_number_;
  }
  // Residents are moved on with the operations, and closed by shutdown(), the latest first.
  using MakeResident = std::function<Result<std::shared_ptr<Resident>>(transport::Fabric&)>;
  Status attach(const MakeResident& make);
  // Closes it now; nothing where it isn't attached.
  void detach(const Resident& resident);

 private:
  class Turn {
   public:
    explicit Turn(Runtime& runtime) : runtime_(runtime) { runtime_.enter(); }
    ~Turn() { runtime_.leave(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Runtime& runtime_;
  };
  // The scope of a call that gives the lock up meanwhile: nothing is destroyed until it has ended.
  class Stay;
  class Driven;
  struct Keepsake {
    std::shared_ptr<Operation> operation;
    std::shared_ptr<void> memory;
  };
  // A communicator whose members say that they are done with it: a barrier, once it is started.
  struct Retiring {
    CommunicatorHandle communicator;
    std::optional<collective::Request> barrier;
  };

  // A signal handler, say, that runs during a wait of its thread.
  static bool is_within_call();

  explicit Runtime(Config config) : config_(std::move(config)) {}
  Status join(const Environment& environment, Options options);
  Result<CommunicatorHandle> adopt(std::unique_ptr<collective::Communicator> communicator,
                                   const Interrupt& look = {});
  void enter();
  void leave();
  void wake();
  // Under the lock:
  Status check_open() const;
  Status check(const CommunicatorHandle& communicator) const;
  Result<std::shared_ptr<Operation>> post(const CommunicatorHandle& communicator,
                                          const collective::Call& call, const Interrupt& interrupt,
                                          Duration patience, Status& interrupted);
  Result<collective::Request> wait_for_room(const CommunicatorHandle& communicator,
                                            const collective::Call& call,
                                            const Interrupt& interrupt, Duration patience,
                                            Status& interrupted);
  Status post_and_drive(const CommunicatorHandle& communicator, const collective::Call& call,
                        const Interrupt& interrupt, std::shared_ptr<Operation>& operation,
                        std::shared_ptr<void> memory = nullptr);
  Status connect(collective::Communicator& communicator, const Interrupt& look);
  Status run_inside(const CommunicatorHandle& communicator, const collective::Call& call,
                    const Interrupt& interrupt, std::shared_ptr<void> memory = nullptr);
  Status drive(const std::shared_ptr<Operation>& operation, Duration timeout,
               const Interrupt& interrupt);
  Status drain(const CommunicatorSlot* communicator, Duration timeout, const Interrupt& interrupt);
  Status breathe(const Interrupt& interrupt, TimePoint& last_interrupt);
  void sweep();
  void sweep_retiring();
  void keep(std::shared_ptr<Operation> operation);
  bool has_work() const;
  // The background thread.
  void serve();
  void stop_serving();
  Status meet_all(Duration patience);
  void dismantle();

  Config config_;
  SteadyClock clock_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<Bootstrap> bootstrap_;
  JobInfo job_;
  std::unique_ptr<transport::Fabric> fabric_;
  CommunicatorHandle world_;
  std::vector<CommunicatorHandle> communicators_;
  // That could not be formed. Members that don't know may still write to them, until the end.
  std::vector<std::unique_ptr<collective::Communicator>> unformed_;

  TurnLock lock_;
  std::vector<std::shared_ptr<Operation>> outstanding_;  // that nobody may be waiting for
  std::vector<std::shared_ptr<Operation>> driven_;       // that threads wait for, maybe several one
  std::vector<Keepsake> kept_;                           // leave() drops what is over
  std::vector<std::shared_ptr<Resident>> residents_;
  std::vector<Retiring> retiring_;
  std::mutex retired_mutex_;
  std::vector<CommunicatorHandle> retired_;  // under retired_mutex_; to be added to retiring_
  std::atomic<bool> is_retiring_{false};     // either has some
  std::uint64_t last_number_ = 0;
  bool is_open_ = true;
  bool is_driven_ = false;  // a thread waits, and moves everything on
  int stays_ = 0;

  std::mutex wake_mutex_;
  transport::Fabric* sleeper_ = nullptr;  // under wake_mutex_; what wake() rouses

  std::thread server_;
  std::mutex server_mutex_;
  std::condition_variable server_news_;
  bool has_work_ = false;  // under server_mutex_
  std::atomic<bool> stops_serving_{false};
  std::atomic<int> blocked_{0};  // threads that move everything on themselves
};

}  // namespace dunlin::binding
