// SharedVector: a vector of floats in a communicator's memory. One additional float, the flag, lies
// right before the first element. It tells whether any rank wants to stop, and is averaged with the
// first elements in the same all-reduce. Owner thread only.
#pragma once

#include <memory>
#include <span>

#include "collectives/communicator/communicator.h"
#include "collectives/training/methods/pieces.h"

namespace dunlin::training {

class SharedVector {
 public:
  // Collective over the members. The communicator must outlive the vector.
  static Result<SharedVector> allocate(collective::Communicator& communicator, std::size_t count) {
    DUNLIN_ASSIGN(const auto memory, communicator.allocate((kFirst + count) * sizeof(float)));
    return SharedVector({reinterpret_cast<float*>(memory.data()), kFirst + count});
  }
  SharedVector() = default;

  std::span<float> elements() const { return memory_.subspan(kFirst); }
  float& flag() const { return memory_[kFirst - 1]; }
  // Averages the elements of `range` over all members, in place. With the first element it also
  // averages the flag.
  Result<collective::CollectiveRequest> start_average(collective::Communicator& communicator,
                                                      ModelRange range,
                                                      const std::string& algorithm) const {
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
  // The elements begin on a cache line; the flag is right before them.
  static constexpr std::size_t kFirst = transport::kCacheLine / sizeof(float);

  explicit SharedVector(std::span<float> memory) : memory_(memory) {}
  std::span<float> memory_;
};

}  // namespace dunlin::training
