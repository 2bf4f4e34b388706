// Operations: the calls of one communicator under way, in parts, in order.
//
// A call is one part; or, with memory that peers don't know, many: slices that are copied to
// staging memory, run there, and copied out. Parts are numbered over all calls, alike on all
// members, and take turns (plan.h). A state machine under progress(). Owner thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/communicator/members.h"
#include "collectives/communicator/plan.h"

namespace dunlin::collective {

class Operations {
 public:
  explicit Operations(Members& group);

  // Puts the call into the queue. kBusy: the queue is full.
  Result<Request> post(const Call& call, const Algorithm& algorithm);
  // post(), in short, for a call that is the same as the one that had this turn before; false: it
  // isn't, or others are under way.
  bool repeat(const Call& call, Request& request);
  // Moves everything on; the first error stays.
  Status progress();
  bool is_over(const Request& request) const;
  // Whom the oldest part waits for, and for what.
  std::vector<transport::Awaited> awaited() const;
  // No operation of ours is under way at a lane.
  bool is_quiet() const;

 private:
  // A call in the queue.
  struct Posted {
    Call call;
    const Algorithm* algorithm = nullptr;
    bool is_staged = false;
    std::size_t slice = 0;  // elements per part
    std::uint64_t parts = 0;
    std::uint64_t started = 0;
    Placement input;
    Placement output;
  };
  // A part that is under way, or the last one that was in this turn.
  struct Running {
    explicit Running(Members& group) : executor(group.board(), group.compute()) {}
    Executor executor;
    std::uint64_t number = 0;
    Call call;
    const Algorithm* algorithm = nullptr;
    bool is_chosen = false;  // the call names no algorithm
    bool is_staged = false;
    Range slice;
    bool is_over = true;
    std::uint64_t memory_version = 0;  // of the windows that it was bound to; 0: to none
    TimePoint began{};                 // for the trace, where there is one
  };

  static constexpr std::size_t kQueue = 256;
  // Staging memory per part: of its input, and again of its output.
  static constexpr std::size_t kStagedBytes = std::size_t{512} << 10;

  Status check(const Call& call) const;
  Status find_memory(Posted& posted);
  Status stage(Posted& posted);
  Status prepare(Posted& posted);
  Result<Plan*> plan_for(const Posted& posted, std::size_t count);
  Result<Request> enqueue(Posted posted);
  bool may_start() const;
  bool is_turn_free(const Algorithm& algorithm) const;
  Status start_part();
  Status bind(Running& running, const Posted& posted, Plan& plan);
  Range slice_of(const Posted& posted, std::uint64_t part) const;
  // Tells the trace, where there is one, what a part has taken.
  void begin_span(Running& running);
  void end_span(const Running& running);
  std::size_t staged_at(std::uint64_t number, BufferKind kind) const;
  // Between the caller's memory and the staging memory, block by block.
  void copy_in(const Running& running) const;
  void copy_out(const Running& running) const;

  Members& group_;
  std::map<PlanKey, std::unique_ptr<Plan>> plans_;
  Plan* last_plan_ = nullptr;
  Window* staging_ = nullptr;
  std::vector<Posted> queue_;  // ring; calls by their number modulo its size
  std::uint64_t calls_posted_ = 0;
  std::uint64_t calls_started_ = 0;  // all of their parts
  std::vector<std::unique_ptr<Running>> turns_;
  std::uint64_t next_number_ = 0;  // to be given to a part
  std::uint64_t next_start_ = 0;
  std::uint64_t oldest_ = 0;  // that isn't over
  // Numbers of parts, plus one; of collectives after which everybody is known to have entered.
  std::uint64_t last_synchronizing_posted_ = 0;
  std::uint64_t last_synchronizing_over_ = 0;
  Status error_;
};

}  // namespace dunlin::collective
