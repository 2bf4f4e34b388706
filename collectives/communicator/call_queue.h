// CallQueue: the operations of one communicator that are in progress.
//
// An operation on the communicator's own memory is one part. An operation on other memory consists
// of many parts: each copies a slice to staging memory, runs there, and copies the result out.
// Parts are numbered through all operations, equally on all members, and take turns (plan.h). A
// state machine under progress(). Owner thread only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/communicator/call_record.h"
#include "collectives/communicator/members.h"
#include "collectives/communicator/mismatch.h"
#include "collectives/communicator/plan.h"
#include "collectives/communicator/signature.h"

namespace dunlin::collective {

class CallQueue {
 public:
  // Chooses the algorithm of a call that names none.
  using Choose = std::function<Result<const Algorithm*>(const Call&)>;
  CallQueue(Members& members, Choose choose);

  // Appends the call to the queue. Returns kBusy if the queue is full.
  Result<CollectiveRequest> post(const Call& call, const Algorithm& algorithm);
  // A short form of post() that starts the call at once. Returns false if the call differs from the
  // last one in this turn, or if other calls are in progress.
  bool repeat(const Call& call, CollectiveRequest& request);
  // Progresses all calls, without blocking. After an error, always returns that error. A call from
  // within another one does nothing.
  Status progress();
  // To be called while calls are in progress, with the time: if the oldest part has not completed
  // for a while, finds out whether members make different calls. Returns that error, which is then
  // final, and ok otherwise.
  Status check_stall(TimePoint now);
  // True if members make different calls, and this member still waits for the description of the
  // other call. No call advances any more; check_stall() should be called soon.
  bool is_in_doubt() const { return error_.is_ok() && news_.is_known(); }
  bool is_over(const CollectiveRequest& request) const;
  // True if all calls have completed.
  bool is_idle() const { return oldest_ == next_number_; }
  // The peer that the oldest part waits for, and what it waits for.
  std::vector<transport::Awaited> awaited() const;
  Rank blocker() const {  // that peer
    const Running* const running = held_up();
    return running == nullptr ? Rank() : running->executor.awaited();
  }
  // True if no lane accesses this member's memory any more.
  bool is_quiet() const;
  // Ends all calls that are not over with this error, for good, as after the death of a member:
  // their memory is the callers' again, and nothing is written to it any more. Keeps an earlier
  // error.
  void give_up(const Status& why) {
    if (error_.is_ok()) (void)fail(why);
  }
  // Gives up all calls that are not over, for good. Call it again until is_quiet().
  void stop();

 private:
  // A call in the queue.
  struct Posted {
    Call call;        // its name is in `terms`
    CallTerms terms;  // of its first part
    std::uint64_t parts = 1;
    std::uint64_t started = 0;
  };
  // A part that is in progress, or the last one that ran in this turn.
  struct Running {
    Running(Members& members, std::uint64_t turn)
        : executor(members.board(), members.compute(turn)) {}
    std::shared_ptr<Plan> plan;  // bound to the executor
    Executor executor;
    std::uint64_t number = 0;
    Call call;
    CallTerms terms;
    bool is_chosen = false;  // the call named no algorithm
    Range slice;
    bool is_over = true;
    std::uint64_t memory_version = 0;  // of the windows that the part was bound to; 0: none
    CallRecord record;
  };

  static constexpr std::size_t kQueue = 256;
  // Staging memory per part: this size for its input, and again for its output.
  static constexpr std::size_t kStagedBytes = std::size_t{512} << 10;

  // A member may be late for this long before this one asks whether it makes another call.
  static constexpr Duration kFirstStallCheck = std::chrono::milliseconds(200);
  static constexpr Duration kLongestStallPause = std::chrono::seconds(1);
  // If check_stall() was not called for this long, the caller has done something else meanwhile.
  static constexpr Duration kStallMemory = std::chrono::seconds(5);
  static constexpr Duration kNewsPause = std::chrono::milliseconds(5);

  Status advance();
  // The first error, which ends the parts in progress, and all later calls.
  Status fail(Status status) {
    for (std::uint64_t number = oldest_; number < next_start_; ++number) {
      const Running& running = *turns_[number % kTurns];
      if (!running.is_over) running.record.give_up(members_.fabric());
    }
    return error_ = std::move(status);
  }
  Posted posted_of(const Call& call, const Algorithm& algorithm) const;
  Status find_memory(Posted& posted);
  Status stage(Posted& posted);
  Status prepare(Posted& posted);
  Result<std::shared_ptr<Plan>> plan_for(const Posted& posted, std::size_t count);
  Result<CollectiveRequest> enqueue(Posted posted);
  bool may_start() const;
  bool is_turn_free(const Algorithm& algorithm) const;
  Status start_part();
  Status bind(Running& running, const Posted& posted, const std::shared_ptr<Plan>& shared);
  static Numbering numbering_of(std::uint64_t number) {
    return {Numbering::kMostRoundBits, number / kTurns};
  }
  // What the members have to agree on in this part of the call.
  CallTerms terms_of(const Posted& posted, std::uint64_t number) const;
  // Imports a member's memory. Blocks until the member has published it, at most for
  // config.deadline, or until it is known to make another call.
  Status import(const Posted& posted, Window& window, std::span<const int> members);
  // Publishes that `member` makes another call, whose signature is `signature`.
  void tell_mismatch(std::uint64_t number, const CallTerms& own, int member,
                     std::uint64_t signature);
  // Compares this member's call with the probes of members that wait for this one.
  void check_probes(std::uint64_t number, const CallTerms& own);
  // Looks for a mismatch. Returns its error once both calls are known; the error is final. Until
  // then, and without a mismatch, returns ok.
  Status check_news(TimePoint now);
  Range slice_of(const Posted& posted, std::uint64_t part) const;
  // The oldest part that waits for a peer; null: none.
  const Running* held_up() const;
  std::size_t staged_at(std::uint64_t number, BufferKind kind) const;
  // Copy between the caller's memory and the staging memory, block by block.
  void copy_in(const Running& running) const;
  void copy_out(const Running& running) const;

  Members& members_;
  const Choose choose_;
  PlanCache plans_;
  std::shared_ptr<Plan> last_plan_;
  Window* staging_ = nullptr;
  std::vector<Posted> queue_;  // a ring; call n is at n % kQueue
  std::uint64_t calls_posted_ = 0;
  std::uint64_t calls_started_ = 0;  // calls of which all parts were started
  std::vector<std::unique_ptr<Running>> turns_;
  std::uint64_t next_number_ = 0;  // the next part to be posted
  std::uint64_t next_start_ = 0;   // the next part to be started
  std::uint64_t oldest_ = 0;       // the oldest part in progress
  // The number plus one of the last part of a synchronizing collective: the last one posted, and
  // the last one completed. Once it completes, all members are known to have entered that part.
  std::uint64_t last_synchronizing_posted_ = 0;
  std::uint64_t last_synchronizing_over_ = 0;
  std::uint64_t empty_calls_ = 0;  // calls without elements so far
  MismatchNews news_;
  bool is_advancing_ = false;
  std::uint64_t stalled_part_ = ~std::uint64_t{0};  // the oldest part when check_stall() last ran
  TimePoint last_stall_check_{};
  TimePoint next_stall_check_{};
  TimePoint next_news_check_{};  // while in doubt
  Duration stall_pause_{};
  Status error_;
};

}  // namespace dunlin::collective
