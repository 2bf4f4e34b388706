// SharedVector: a vector of floats in a communicator's memory, and before it, in the same piece of
// memory, one float more: so that whether anybody wants to stop travels with the vector's last
// piece, as one element of the same all-reduce. Owner thread only.
#pragma once

#include <memory>
#include <span>

#include "apps/training/methods/pieces.h"
#include "collectives/communicator.h"

namespace dunlin::training {

class SharedVector {
 public:
  // Collective over the communicator's members, which outlives it.
  static Result<SharedVector> allocate(collective::Communicator& communicator, std::size_t count) {
    DUNLIN_ASSIGN(const auto memory, communicator.allocate((kFirst + count) * sizeof(float)));
    return SharedVector({reinterpret_cast<float*>(memory.data()), kFirst + count});
  }
  SharedVector() = default;

  std::span<float> elements() const { return memory_.subspan(kFirst); }
  float& flag() const { return memory_[kFirst - 1]; }
  // Averages elements over all members, in place, and the flag with the first ones.
  Result<collective::Request> start_average(collective::Communicator& communicator,
                                            ModelRange range, const std::string& algorithm) const {
    const std::size_t flags = range.first == 0 ? 1 : 0;
    float* const from = memory_.data() + kFirst + range.first - flags;
    collective::Call call;
    call.input = from;
    call.output = from;
    call.count = range.count + flags;
    call.reduction = {collective::DataType::kFloat32, collective::ReduceOp::kAverage};
    call.algorithm = algorithm;
    return communicator.start(call);
  }

 private:
  // The elements begin on a cache line, the flag is right before them.
  static constexpr std::size_t kFirst = transport::kCacheLine / sizeof(float);

  explicit SharedVector(std::span<float> memory) : memory_(memory) {}
  std::span<float> memory_;
};

}  // namespace dunlin::training
