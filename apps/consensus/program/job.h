// What a rank has from its job: sums over all ranks, and averages with its neighbors.
#pragma once

#include <memory>

#include "apps/consensus/algorithm.h"
#include "apps/consensus/ranks.h"
#include "apps/consensus/topology.h"
#include "collectives/communicator/communicator.h"
#include "collectives/neighbor/neighbor_exchange.h"
#include "transports/fabric.h"

namespace dunlin::consensus {

// Computes sums and maxima by all-reduce.
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

// Averages with the neighbors of one step of the topology after the other.
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
