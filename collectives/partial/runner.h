// Runner: carries out an operation that all members have entered, on the members' memory. It runs
// one program, or one program per slice. A state machine. Owner thread only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "collectives/kernels/reduce.h"
#include "collectives/partial/contacts.h"
#include "collectives/partial/memory.h"
#include "collectives/schedule/algorithm.h"
#include "collectives/schedule/executor.h"

namespace dunlin::collective::partial {

// What the runner has to do. Members are in the order of their ranks. Vectors are indexed by
// member.
struct Task {
  std::uint64_t number = 0;
  std::uint64_t tag = 0;           // hash of the group's members and the label
  int index = 0;                   // this rank's
  std::vector<Contact*> contacts;  // null for this rank
  std::vector<Hello> hellos;       // this rank's included
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  Reduction reduction;
  OwnWindow* input_window = nullptr;  // null: the memory is in no window
  OwnWindow* output_window = nullptr;
};

class Runner {
 public:
  Runner(transport::Fabric& fabric, Memory& memory, Contacts& contacts, Terms terms,
         std::unique_ptr<Compute> compute);

  // Allocates scratch memory, for what peers put here and for what is copied, if there is none. It
  // is window 0 at first, and another one after each abandon().
  Status allocate_scratch();
  std::uint32_t scratch_window() const { return scratch_->id; }

  // `task` outlives the run. Imports windows that are reached for the first time, which blocks for
  // a round trip to the bootstrap each.
  Status start(const Task& task);
  Status test();
  // Copies the input to the output, for a group of this rank alone. kBusy until it is done: call it
  // again.
  Status copy(const Task& task);
  // The member that is waited for; Rank() while this rank waits for its own puts.
  Rank awaited() const { return executor_->awaited(); }
  // Whether the program reads and writes the mapped memory of peers.
  bool touches_peers() const { return algorithm_->needs_mapped_peers; }
  // Waits for a reduction of a GPU that is in progress. An operation that is aborted needs that
  // before its end, as the reduction may access the memory of members.
  void finish_reduction() { compute_->settle(); }
  // Ends the run. The members that this rank has greeted may have begun the operation. The memory
  // that they may still access is held until all of them have ended it.
  void abandon(const Task& task, std::vector<const Contact*> greeted);
  // Releases the memory of abandoned operations that nobody accesses any more.
  void settle();
  std::size_t abandoned() const { return abandoned_.size(); }
  // Gives up the run for good. Call it again until is_quiet().
  void stop();
  // No lane reads this rank's memory.
  bool is_quiet() const;

  std::uint64_t programs_generated() const { return generated_; }
  std::uint64_t programs_found() const { return found_; }
  std::size_t programs_kept() const { return plans_.size(); }

 private:
  struct PlanKey {
    const Algorithm* algorithm = nullptr;
    int size = 0;
    int index = 0;
    std::size_t count = 0;
    std::size_t element = 0;
    auto operator<=>(const PlanKey&) const = default;
  };
  struct Plan {
    Program program;
    std::uint64_t last_use = 0;
  };

  // An operation that was given up, and what may still be accessed for it.
  struct Abandoned {
    std::uint64_t number = 0;
    std::vector<const Contact*> greeted;
    std::vector<OwnWindow*> windows;
    std::vector<ExecutorPeer*> peers;  // of the executor's binding
    std::unique_ptr<Executor> executor;
  };

  Status choose();
  Status start_slice();
  Status bind(const Plan& plan, std::size_t count);
  Status place(BufferKind kind, std::size_t own_bytes);
  Result<const Plan*> plan_for(std::size_t count);
  Status check_messages(const Plan& plan) const;
  std::size_t turn() const { return static_cast<std::size_t>(slice_ % kTurns); }
  std::size_t slice_count() const;
  std::byte* staged() const;
  void move(bool is_in) const;

  transport::Fabric& fabric_;
  Memory& memory_;
  Contacts& contacts_;
  Terms terms_;
  std::unique_ptr<Compute> compute_;
  OwnWindow* scratch_ = nullptr;
  std::unique_ptr<Executor> executor_;
  std::vector<Abandoned> abandoned_;

  const Task* task_ = nullptr;
  const Algorithm* algorithm_ = nullptr;
  bool is_staged_ = false;
  std::size_t slice_length_ = 0;  // elements
  std::uint64_t slice_ = 0;
  std::uint64_t slices_ = 0;
  ExecutorBinding binding_;
  std::vector<ExecutorPeer*> peers_;
  std::vector<std::array<PeerBuffer, kBufferKinds>> buffers_;

  std::map<PlanKey, Plan> plans_;
  std::uint64_t uses_ = 0;
  std::uint64_t generated_ = 0;
  std::uint64_t found_ = 0;
};

}  // namespace dunlin::collective::partial
