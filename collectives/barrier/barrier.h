// Barrier: no member leaves before all members have entered. This is a dissemination barrier
// (Hensgen, Finkel and Manber, 1988). It takes ceil(log2 n) rounds. In round k each member notifies
// the member 2^k places ahead and waits for the member 2^k places behind. A notification travels on
// the control lane.
//
// A state machine: start() and test() never block. Owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/waiting/background_steps.h"
#include "runtime/bootstrap/neighbor_values.h"
#include "transports/fabric.h"

namespace dunlin::collective {

class Barrier {
 public:
  // `members` are in ascending order and include this rank. `members` and `name` are the same on
  // all members. Creation has two steps: prepare() publishes this rank's cells and does not block.
  // connect() blocks until the peers have prepared, at most for config.deadline.
  static Result<std::unique_ptr<Barrier>> prepare(transport::Fabric& fabric, std::string name,
                                                  std::vector<Rank> members);
  Status connect();
  ~Barrier();
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  // Enters the barrier. Returns kInvalidArgument while the previous one is in progress.
  Status start();
  // Returns kBusy until all members have entered. In between, the caller progresses the fabric, or
  // waits for something else on it: either advances the barrier.
  Status test();
  // Calls start(), then test() until the barrier has completed. Returns the errors of Fabric::wait.
  // After a timeout, the barrier goes on.
  Status wait(Duration timeout);
  // Ends a barrier that has failed for its caller: it goes on nowhere. Only destroy it then.
  void stop(Status outcome) { steps_.stop(std::move(outcome)); }
  // The peer that this rank waits for at the moment.
  std::vector<transport::Awaited> awaited() const;
  Rank blocker() const;

 private:
  struct Round {
    Rank to;
    Rank from;
    transport::Link* link = nullptr;  // to the peer `to`
    transport::NotifyId peer_cell{};
  };
  Barrier(transport::Fabric& fabric, std::string name, std::vector<Rank> members)
      : fabric_(fabric),
        name_(std::move(name)),
        members_(std::move(members)),
        steps_(fabric, [this] { return step(); }) {}
  Status allocate();
  Status step();
  transport::NotifyId own_cell(std::size_t round) const;

  transport::Fabric& fabric_;
  std::string name_;
  std::vector<Rank> members_;
  std::vector<Round> rounds_;
  std::optional<bootstrap::NeighborValues> offers_;
  transport::NotifyId cells_{};
  bool has_cells_ = false;
  std::uint64_t generation_ = 0;  // barriers entered
  std::size_t round_ = 0;         // rounds_.size(): no barrier is in progress
  bool has_notified_ = false;     // in this round
  BackgroundSteps steps_;
};

}  // namespace dunlin::collective
