#include "apps/consensus/program/job.h"

namespace dunlin::consensus {

using collective::DataType;
using collective::ReduceOp;

Status CommunicatorRanks::sum(std::span<double> values) {
  return communicator_.all_reduce(values.data(), values.data(), values.size(),
                                  {DataType::kFloat64, ReduceOp::kSum});
}

Status CommunicatorRanks::max(std::span<double> values) {
  return communicator_.all_reduce(values.data(), values.data(), values.size(),
                                  {DataType::kFloat64, ReduceOp::kMax});
}

Status ExchangeNeighbors::average(std::span<double> message) {
  StepWeights weights = topology_.weights(rank_.value(), step_++);
  return exchange_.run({.name = "average",
                        .input = message.data(),
                        .output = message.data(),
                        .count = message.size(),
                        .type = DataType::kFloat64,
                        .self_weight = weights.self,
                        .sources = std::move(weights.from),
                        .destinations = std::move(weights.to)});
}

}  // namespace dunlin::consensus
