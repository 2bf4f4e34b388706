// Walk: one run through the programs of all ranks. Because a schedule is a Kahn process network
// (program.h), the findings for one order of steps hold for all orders.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "collectives/schedule/program.h"
#include "runtime/status.h"

namespace dunlin::collective {

// A step, by its rank and its index in that rank's program.
struct StepId {
  int rank = 0;
  std::size_t index = 0;
};

class Walk {
 public:
  explicit Walk(std::span<const Program> programs);

  // Calls visit(StepId, const StepId* sent) for every step, in a possible order. `sent` is the step
  // whose message a wait receives, and null for other steps. `visit` returns a Status; the first
  // error ends the walk. Returns kCorrupted, with the name of a step, if a rank waits for a message
  // that no rank sends, or if a message is never received.
  template <typename Visit>
  Status run(Visit&& visit) {
    for (std::size_t rank = 0; rank < programs_.size(); ++rank)
      ready_.push_back(static_cast<int>(rank));
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      const Program& program = programs_[static_cast<std::size_t>(rank)];
      for (std::size_t& at = at_[static_cast<std::size_t>(rank)]; at < program.steps.size(); ++at) {
        const Step& step = program.steps[at];
        const StepId id{rank, at};
        if (step.kind != StepKind::kWait) {
          DUNLIN_TRY(visit(id, nullptr));
          if (step.kind == StepKind::kPut || step.kind == StepKind::kSignal) send(id, step);
          continue;
        }
        const StepId* const sent = take(rank, step);
        if (sent == nullptr) break;
        DUNLIN_TRY(visit(id, sent));
      }
    }
    return check_end();
  }

  const Step& step(const StepId& id) const {
    return programs_[static_cast<std::size_t>(id.rank)].steps[id.index];
  }

 private:
  struct Inbox {
    std::vector<StepId> messages;
    std::size_t taken = 0;
  };

  void send(const StepId& id, const Step& step);
  const StepId* take(int rank, const Step& step);
  Status check_end() const;
  Inbox* inbox(int rank, std::int32_t peer, Stream stream) {
    return &inboxes_[static_cast<std::size_t>(rank)]
                    [static_cast<std::size_t>(peer) * kStreams + static_cast<std::size_t>(stream)];
  }

  std::span<const Program> programs_;
  std::vector<std::size_t> at_;
  std::vector<std::vector<Inbox>> inboxes_;  // by rank, by peer's index and stream
  // The index under which each rank's peer knows that rank; -1: the peer does not know it.
  std::vector<std::vector<std::int32_t>> index_at_peer_;
  std::vector<int> ready_;
};

std::string describe(const Program& program, std::size_t index);

}  // namespace dunlin::collective
