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

#include "collectives/communicator/group.h"
#include "collectives/communicator/plan.h"

namespace dunlin::collective {

class Operations {
 public:
  explicit Operations(Group& group);

  // Puts the call into the queue. kBusy: the queue is full.
  Result<Request> post(const Call& call, const Algorithm& algorithm);
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
    std::size_t slice = 0;    // elements per part
    std::uint64_t first = 0;  // number of its first part
    std::uint64_t parts = 0;
    std::uint64_t started = 0;
    Placement input;
    Placement output;
  };
  // A part that is under way, by turn.
  struct Running {
    explicit Running(Group& group) : executor(group.board(), group.compute()) {}
    Executor executor;
    Plan* plan = nullptr;
    Posted* posted = nullptr;
    Range slice;
    bool is_over = true;
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
  Status start_part();
  void finish_part(Running& running);
  Status bind(Running& running, std::uint64_t number);
  Range slice_of(const Posted& posted, std::uint64_t part) const;
  std::size_t staged_at(std::uint64_t number, BufferKind kind) const;
  // Between the caller's memory and the staging memory, block by block.
  void copy_in(const Running& running, std::uint64_t number) const;
  void copy_out(const Running& running, std::uint64_t number) const;

  Group& group_;
  std::map<PlanKey, std::unique_ptr<Plan>> plans_;
  Plan* last_plan_ = nullptr;
  Window* staging_ = nullptr;
  std::vector<Posted> queue_;  // ring; calls by their number modulo its size
  std::uint64_t calls_posted_ = 0;
  std::uint64_t calls_started_ = 0;  // all of their parts
  std::uint64_t calls_over_ = 0;
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
