// Job: a rank's place in the job: what it compares results with, averages with and writes to.
#pragma once

#include <memory>

#include "apps/consensus/algorithm.h"
#include "apps/consensus/ranks.h"
#include "apps/consensus/topology.h"
#include "collectives/communicator.h"
#include "collectives/neighbor/neighbor_exchange.h"
#include "transports/fabric.h"

namespace dunlin::consensus {

// Sums and maxima by all-reduce.
class CommunicatorRanks final : public Ranks {
 public:
  explicit CommunicatorRanks(collective::Communicator& communicator)
      : communicator_(communicator) {}
  int size() const override { return communicator_.size(); }
  Status sum(std::span<double> values) override;
  Status max(std::span<double> values) override;

 private:
  collective::Communicator& communicator_;
};

// Averages over one step of the topology after the other.
class ExchangeNeighbors final : public Neighbors {
 public:
  ExchangeNeighbors(collective::NeighborExchange& exchange, const Topology& topology, Rank rank)
      : exchange_(exchange), topology_(topology), rank_(rank) {}
  Status average(std::span<double> message) override;

 private:
  collective::NeighborExchange& exchange_;
  const Topology& topology_;
  Rank rank_;
  std::uint64_t step_ = 0;
};

}  // namespace dunlin::consensus
