// StopSignal: the reporting rank tells all workers that the target is reached, and all of them stop
// after the same exchange.
//
// The leader announces "stop after exchange s + members" in a cell of every worker, and continues
// when the announcement is visible everywhere. In BSP and NOTIFY-ACK no worker can be that many
// exchanges ahead of the leader without having received a later model of the leader. In ASYNC no
// worker waits, and the number does not matter. Owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transports/fabric.h"

namespace dunlin::svm {

class StopSignal {
 public:
  // Collective over all ranks of the fabric.
  static Result<std::unique_ptr<StopSignal>> create(transport::Fabric& fabric);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // To be called once, by the leader.
  Status announce(std::uint64_t last_exchange, const std::vector<Rank>& members);
  // Exchange after which to stop; 0: not announced.
  std::uint64_t last_exchange() const { return fabric_.board().sequence(cell_); }

 private:
  explicit StopSignal(transport::Fabric& fabric) : fabric_(fabric) {}

  transport::Fabric& fabric_;
  transport::NotifyId cell_{};
  bool has_cell_ = false;
};

}  // namespace dunlin::svm
