// StopSignal: how the reporting rank tells all workers that the target is reached, such that they
// stop after the same exchange.
//
// The leader announces "stop after exchange s + members" in a cell of every worker, and waits until
// the announcement is visible everywhere before it goes on. In BSP and NOTIFY-ACK no worker can be
// so many exchanges ahead of the leader without having received a model that the leader sent later;
// in ASYNC, where nobody waits for anybody, the number doesn't matter. Owner thread only.
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

  // Leader: to be called once.
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
