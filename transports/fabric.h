// Fabric: one process's view of its peers.
//
// A fabric owns the transports that work in this process and the links to the peers that it has
// communicated with so far. It picks one transport per peer, registers memory with all transports
// at once, and is what a process progresses and waits on.
//
// Objects on a fabric that peers depend on, such as windows, add a task. progress() calls it, and
// so does every wait of the library: peers get their answers even if this process waits for
// something else, at the latest when it next waits at all.
//
// A process may have several fabrics; tests run threads as ranks, each with its own. A bootstrap
// has one fabric at a time that makes new links, because its mail reaches one of them. All calls
// come from the fabric's owner thread, except where stated. Another thread may become the owner if
// a lock orders the calls of the old owner before those of the new one. Regions, and everything
// else that uses the links, must be destroyed before the fabric.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/topic_values.h"
#include "runtime/config.h"
#include "runtime/counters.h"
#include "runtime/flight/wait_record.h"
#include "runtime/trace.h"
#include "runtime/wait.h"
#include "transports/transport.h"

namespace dunlin::transport {

// The transports of this build, in no particular order. Config::transports lists those to use, in
// order of preference.
std::vector<TransportFactory> builtin_transports();

// A peer that a wait depends on, and what the wait is for ("the barrier", "model 17").
struct Awaited {
  Rank peer;
  std::string what;
};

// What a wait depends on, in two forms: the call operator returns the list of peers and what is
// awaited from each, for messages. blocker() returns the first peer of that list, for the flight
// recorder, and must not allocate. A wait on the data path passes both to Fabric::wait().
template <typename List, typename First>
struct Awaiting {
  List list;
  First first;
  std::vector<Awaited> operator()() const { return list(); }
  Rank blocker() const { return first(); }
};
template <typename List, typename First>
Awaiting(List, First) -> Awaiting<List, First>;

// Completions, and the memory of their operations, that lanes may still use after the object that
// posted the operations was destroyed. See Fabric::keep_until_done().
class KeptUntilDone {
 public:
  virtual ~KeptUntilDone() = default;
  // Posts what it takes to learn that; is_done() follows. Called in every progress().
  virtual void settle() {}
  // Whether all operations have completed, so that no lane uses the memory any more.
  virtual bool is_done() const = 0;
};

class Fabric final : public Progressor {
 public:
  // Notification cells of a process: enough for 250 communicators of the whole job (16 cells per
  // member, collectives/communicator), or for queues of depth 8 from 2,000 in-neighbors. Only what
  // is used takes memory.
  static constexpr std::size_t cells_for(int size) {
    constexpr std::size_t kLeast = 16384;
    constexpr std::size_t kPerRank = 4096;
    return std::max(kLeast, kPerRank * static_cast<std::size_t>(size));
  }

  // Makes the transports and publishes this process's addresses through the bootstrap. All
  // arguments must outlive the fabric. A transport that does not work here is left out; explain()
  // says why. Fails if none of config.transports works. `cells`: the size of the board; 0:
  // cells_for() the job.
  static Result<std::unique_ptr<Fabric>> create(Bootstrap& bootstrap, const Config& config,
                                                const Clock& clock, Trace* trace = nullptr) {
    return create(bootstrap, config, clock, trace, builtin_transports());
  }
  static Result<std::unique_ptr<Fabric>> create(Bootstrap& bootstrap, const Config& config,
                                                const Clock& clock, Trace* trace,
                                                const std::vector<TransportFactory>& factories,
                                                std::size_t cells = 0);
  ~Fabric() override;

  Rank rank() const { return bootstrap_.rank(); }
  int size() const { return bootstrap_.size(); }
  Bootstrap& bootstrap() { return bootstrap_; }
  PeerTable& peers() { return bootstrap_.peers(); }
  NotifyBoard& board() { return *board_; }
  Counters& counters() { return counters_; }
  const Config& config() const { return config_; }
  const Clock& clock() const { return clock_; }
  // The time that is left until `deadline`; none if it has passed.
  Duration remaining(TimePoint deadline) const {
    return std::max<Duration>(deadline - clock_.now(), Duration::zero());
  }
  Trace* trace() { return trace_; }               // null if nothing is traced
  flight::Recorder* flight() { return flight_; }  // null if nothing is recorded
  // From now on, waits and bytes are recorded there. The recorder must outlive the fabric.
  void record_in(flight::Recorder* recorder) { flight_ = recorder; }
  // The program's own loop begins its next step, which has this number: for the recorder, which
  // tells slow ranks by the time of their steps. Besides the owner thread, one other thread may
  // call it.
  void begin_step(std::uint64_t number);
  // Records how many bytes each transport has carried, if that was long ago. There is a recorder.
  void record_bytes(TimePoint now) {
    if (now >= next_record_) record_bytes_now(now);
  }

  // Returns the link to a peer. The first call connects, over the first transport of
  // config.transports that reaches the peer. It blocks for up to config.deadline until the peer has
  // published its address, and, if only a transport that opens on demand is left, until the peer's
  // fabric has made progress. kUnavailable says for each transport why it cannot be used;
  // kPeerStalled names a peer that is stopped.
  Result<Link*> link(Rank peer) { return link(peer, config_.deadline); }
  // The same within `timeout`. With zero, it does not block, and kDeadlineExceeded means that a
  // later call may succeed.
  Result<Link*> link(Rank peer, Duration timeout);
  // Looks up at once what link() needs of those of `peers` that are not connected yet, and so
  // spares it round trips. Blocks until they have published it, at most for `timeout`.
  Status fetch_addresses(std::span<const Rank> peers, Duration timeout);
  // Closes the link to a dead peer. Regions imported through the link must have been destroyed, or
  // be part of what keep_until_done() keeps.
  void drop_link(Rank peer);
  // Keeps `object` until its operations have completed, but not beyond the end of the fabric.
  void keep_until_done(std::unique_ptr<KeptUntilDone> object) {
    kept_.push_back(std::move(object));
  }
  // How many of these objects still have operations in progress.
  std::size_t kept() const { return kept_.size(); }
  // Names the transport used for the peer and says why those before it in the list are not used.
  // Connects to the peer if there is no link yet.
  std::string explain(Rank peer);
  // The name of the transport used for the peer, or "" before the first link(peer).
  std::string_view transport_of(Rank peer) const;

  // Registers memory with every transport, so that it can be the local end of operations and, if
  // its kind allows, the target of peers' operations. Transports that cannot access this kind of
  // memory are skipped, and so are those that lack resources and reach no peer yet; fails with
  // kUnavailable if all are.
  Result<std::unique_ptr<LocalRegion>> register_memory(std::shared_ptr<MemoryRegion> memory);
  // Allocates memory as the configuration says, and registers it. `order` and `pages`: for what the
  // memory is to be used, and how much of it (runtime/memory/region.h).
  Result<std::unique_ptr<LocalRegion>> allocate(std::size_t size,
                                                DeviceOrder order = DeviceOrder::kStrict,
                                                Pages pages = Pages::kReserved);
  // Allocates `size` bytes of a GPU's memory, which are not zeroed, and registers it. When the
  // region has been destroyed, the memory is freed once no peer on this host has it open any more.
  // (Memory of others that is registered is theirs: they must not free it before the peers have
  // destroyed their RemoteRegions.) Returns the errors of the driver and of register_memory().
  Result<std::unique_ptr<LocalRegion>> allocate_on_gpu(std::shared_ptr<GpuDriver> driver,
                                                       int device, std::size_t size);
  // Makes a peer's region usable here. `descriptor` is what LocalRegion::descriptor() returned at
  // the peer. Connects to the peer if there is no link yet.
  Result<std::unique_ptr<RemoteRegion>> import_region(Rank peer,
                                                      std::span<const std::byte> descriptor);

  std::size_t progress() override;
  bool arm() override;
  void disarm() override;
  const std::vector<int>& wait_fds() const override { return wait_fds_; }

  // Adds a function for progress() to call after the transports, until the task is destroyed. It
  // must not block, and must neither call the bootstrap nor add or destroy tasks. It may call
  // progress(), which then leaves out all tasks.
  class Task {
   public:
    Task(Fabric& fabric, std::function<void()> work);
    ~Task();
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;

   private:
    friend Fabric;
    Fabric& fabric_;
    std::function<void()> work_;
  };

  // While there is one, the process does not sleep in wait(): it is for what is in progress on a
  // device and ends without waking anything.
  class StayAwake {
   public:
    explicit StayAwake(Fabric& fabric) : fabric_(fabric) { ++fabric_.stay_awake_; }
    ~StayAwake() { --fabric_.stay_awake_; }
    StayAwake(const StayAwake&) = delete;
    StayAwake& operator=(const StayAwake&) = delete;

   private:
    Fabric& fabric_;
  };

  // Makes a thread that sleeps in wait() check its condition again. May be called by any thread.
  void wake();

  // True if something else wants this thread's core. Then loops outside wait() should not spin.
  bool shares_core() { return waiter_.shares_core(); }

  // Blocks until `ready()` returns something other than kBusy, and returns that. `describe()`
  // returns a vector of Awaited: the peers that are still missing. If one of them dies, wait()
  // returns kPeerDead at once and names the peer. After `timeout` it returns kDeadlineExceeded, or
  // kPeerStalled if one of the peers is stopped. The message lists each missing peer, what was
  // awaited from it, and for how long. ready() is called after a death before it is reported, so
  // that it may wait for others instead. If describe() is an Awaiting, the flight recorder learns
  // from it for whom the wait is. Otherwise it does so from the list, and only in waits that take
  // several milliseconds.
  template <typename Ready, typename Describe>
  Status wait(Ready&& ready, Describe&& describe, Duration timeout) {
    const TimePoint began = clock_.now();
    std::uint64_t seen = ~std::uint64_t{0};
    bool is_anybody_gone = false;  // once true, describe() may name a dead peer at any later time
    if (flight_ != nullptr) record_bytes(began);
    flight::WaitRecord record(flight_, began);
    const auto note = [&](TimePoint now) {
      if (flight_ == nullptr) return;
      if constexpr (requires { describe.blocker(); }) {
        record.note(now, describe.blocker());
      } else if (record.is_list_due(now)) {
        const std::vector<Awaited> awaited = describe();
        if (!awaited.empty()) record.note(now, awaited.front().peer);
      }
    };
    Status status = waiter_.until(
        [&]() -> Status {
          if (Status outcome = ready(); !outcome.is_busy()) return outcome;
          if (const std::uint64_t version = peers().version(); version != seen) {
            seen = version;
            is_anybody_gone = peers().is_anybody_gone();
          }
          if (!is_anybody_gone) return Status::busy();
          if (Status death = report_death(describe(), began); death.is_busy()) return death;
          // The death may be newer than the last call of ready(), which may survive it.
          if (Status outcome = ready(); !outcome.is_busy()) return outcome;
          return report_death(describe(), began);
        },
        began + timeout, note);
    record.end(clock_);
    if (status.code() != Code::kDeadlineExceeded || !status.message().empty()) return status;
    return report_deadline(describe(), began);
  }

 private:
  // Transports that are not in use are progressed in every 16th turn only.
  static constexpr std::uint32_t kTurnsPerIdlePoll = 16;

  struct Member {
    std::unique_ptr<Transport> transport;
    bool is_open = false;
    Status failure;        // of open()
    std::set<Rank> asked;  // peers that were asked to open theirs
    bool is_full = false;  // memory could not be registered with it for want of resources
    std::set<Rank> told;   // peers for which the address was posted
  };
  struct Connection {
    std::unique_ptr<Link> link;
    std::size_t transport = 0;
    std::string explanation;
  };

  Fabric(Bootstrap& bootstrap, const Config& config, const Clock& clock, Trace* trace);
  Status start(const std::vector<TransportFactory>& factories, std::size_t cells);
  // Revokes the access of ranks that are gone, as far as others ask for it.
  void revoke_access();
  // Closes the lanes of this rank, which may no longer act as a member of the job.
  void close_lanes();
  Status publish_addresses();
  void collect_wait_fds();
  // Opens the transport for a peer with this outline, and posts the address for it: an empty one if
  // that fails. The peer may not have asked, or another fabric of this process may get its request.
  Status open(Member& member, Rank peer, std::span<const std::byte> peers_outline);
  // Opens the transports that peers have asked for.
  void take_requests();
  Result<Connection> connect(Rank peer, TimePoint deadline);
  // Asks the peer to open its transport, and waits for its address. The address is empty if that
  // fails at the peer.
  Result<Bytes> ask_for_address(Member& member, Rank peer, TimePoint deadline);
  bool is_connected_over(std::size_t transport) const;
  void release_done();
  void run_tasks();
  // kBusy while all awaited peers are present, otherwise the kPeerDead to report.
  Status report_death(const std::vector<Awaited>& awaited, TimePoint began);
  Status report_deadline(const std::vector<Awaited>& awaited, TimePoint began);
  void record_bytes_now(TimePoint now);

  Bootstrap& bootstrap_;
  Fences& fences_;
  const Config& config_;
  const Clock& clock_;
  Trace* trace_;
  flight::Recorder* flight_ = nullptr;
  TimePoint next_record_{};  // when record_bytes() is due
  Counters counters_;
  std::unique_ptr<NotifyBoard> board_;
  SharedFilePool memory_files_;
  std::vector<Member> members_;
  std::string left_out_;              // names the transports that do not work here, and why
  bootstrap::TopicValues addresses_;  // keeps those of peers that are not connected yet, if fetched
  std::map<Rank, Connection> connections_;
  std::map<Rank, std::size_t> carriers_;  // the last transport of each peer, with or without a link
  std::vector<std::unique_ptr<Link>> dropped_;  // closed, but kept_ may still refer to them
  std::vector<std::unique_ptr<KeptUntilDone>> kept_;
  std::uint32_t turns_ = 0;  // calls of progress()
  std::vector<Task*> tasks_;
  int stay_awake_ = 0;  // how many StayAwake there are
  bool is_running_tasks_ = false;
  std::vector<int> wait_fds_;
  int wake_fd_ = -1;         // an eventfd, written by wake()
  int listener_ = -1;        // of the PeerTable, which wakes this fabric
  std::set<Rank> revoked_;   // ranks whose access was revoked
  int guard_ = 0;            // of fences_; 0: none
  bool is_cut_off_ = false;  // and has closed its lanes
  int chore_ = 0;            // of the bootstrap, which progresses this fabric; 0: none
  Waiter waiter_;
};

}  // namespace dunlin::transport
