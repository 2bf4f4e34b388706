// Barrier: nobody leaves before everybody has come. A dissemination barrier (Hensgen, Finkel and
// Manber, 1988): in round k each member notifies the one 2^k places ahead and waits for the one 2^k
// behind, ceil(log2 n) rounds, each one notification on the control lane.
//
// A state machine: start() and test() never block. Owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transports/fabric.h"

namespace dunlin::collective {

class Barrier {
 public:
  // `members` (ascending, with this rank among them) and `name` are the same on all of them. In two
  // steps, as SlotExchange: prepare() publishes, connect() blocks until the partners are prepared.
  static Result<std::unique_ptr<Barrier>> prepare(transport::Fabric& fabric, std::string name,
                                                  std::vector<Rank> members);
  Status connect();
  ~Barrier();
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  // Enters; kInvalidArgument while the last one isn't done.
  Status start();
  // kBusy until everybody has entered. The caller progresses the fabric.
  Status test();
  // start() and test() until done; errors as Fabric::wait.
  Status wait(Duration timeout);
  // Who is waited for at this moment.
  std::vector<transport::Awaited> awaited() const;

 private:
  struct Round {
    Rank to;
    Rank from;
    transport::Link* link = nullptr;  // to `to`
    transport::NotifyId peer_cell{};
  };
  Barrier(transport::Fabric& fabric, std::string name, std::vector<Rank> members)
      : fabric_(fabric), name_(std::move(name)), members_(std::move(members)) {}
  Status allocate();
  std::string key(Rank rank) const;
  transport::NotifyId own_cell(std::size_t round) const;

  transport::Fabric& fabric_;
  std::string name_;
  std::vector<Rank> members_;
  std::vector<Round> rounds_;
  transport::NotifyId cells_{};
  bool has_cells_ = false;
  std::uint64_t generation_ = 0;  // barriers entered
  std::size_t round_ = 0;         // rounds_.size(): done
  bool has_notified_ = false;     // in this round
};

}  // namespace dunlin::collective
