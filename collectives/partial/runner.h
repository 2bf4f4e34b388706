// Runner: carries out the operation that all members have entered, as a program, or slice by slice
// as several, on the members' memory. A state machine; owner thread only.
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

// What is to be done. Members are in the order of their ranks; vectors are by member.
struct Task {
  std::uint64_t number = 0;
  std::uint64_t tag = 0;           // of the group
  int index = 0;                   // ours
  std::vector<Contact*> contacts;  // null: ourselves
  std::vector<Hello> hellos;       // ours as well
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  Reduction reduction;
  OwnWindow* input_window = nullptr;  // null: in none
  OwnWindow* output_window = nullptr;
};

class Runner {
 public:
  Runner(transport::Fabric& fabric, Memory& memory, Contacts& contacts, Terms terms);

  // The memory for what peers put here, and for what is copied, if there is none: window 0 at
  // first, another one after each abandon().
  Status allocate_scratch();
  std::uint32_t scratch_window() const { return scratch_->id; }

  // `task` outlives the run. Imports what is reached for the first time, which blocks for a round
  // trip to the bootstrap.
  Status start(const Task& task);
  Status test();
  // The member that is waited for; nobody while we wait for our own puts.
  Rank awaited() const { return executor_->awaited(); }
  // Whether the program reads and writes peers' memory where it is mapped.
  bool touches_peers() const { return algorithm_->needs_mapped_peers; }
  // Members may have begun what is given up here: what they still put lands where it does no harm.
  void abandon(const Task& task);
  // Nothing is on its way out of our memory.
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
  KernelCompute compute_;
  OwnWindow* scratch_ = nullptr;
  std::unique_ptr<Executor> executor_;
  std::vector<std::unique_ptr<Executor>> abandoned_;

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
