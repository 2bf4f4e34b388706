// SharedVector: a vector of floats in a communicator's memory, and one additional float, the flag,
// which tells whether any rank wants to stop. In host memory, the flag lies right before the first
// element and is averaged with the first elements in the same all-reduce. If the communicator is
// one of GPUs, the flag is in host memory and has an all-reduce of its own. Owner thread only.
#pragma once

#include <memory>
#include <span>

#include "collectives/communicator/communicator.h"
#include "collectives/training/methods/pieces.h"

namespace dunlin::training {

class SharedVector {
 public:
  // Collective over the members. The communicators must outlive the vector. `flags` has the same
  // members and host memory, if the communicator is one of GPUs, and is null otherwise.
  static Result<SharedVector> allocate(collective::Communicator& communicator,
                                       collective::Communicator* flags, std::size_t count) {
    SharedVector vector;
    DUNLIN_ASSIGN(vector.memory_, allocate_floats(communicator, kFirst + count));
    vector.flag_ = &vector.memory_[kFirst - 1];
    if (flags != nullptr) {
      DUNLIN_ASSIGN(const auto own, allocate_floats(*flags, 1));
      vector.flag_ = own.data();
      vector.has_own_flag_ = true;
    }
    return vector;
  }
  SharedVector() = default;

  std::span<float> elements() const { return memory_.subspan(kFirst); }
  float& flag() const { return *flag_; }
  // Averages the elements of `range` over all members, in place. In host memory, the average of the
  // first element takes in the flag.
  Result<collective::CollectiveRequest> start_average(collective::Communicator& communicator,
                                                      ModelRange range,
                                                      const std::string& algorithm) const {
    const std::size_t flags = range.first == 0 && !has_own_flag_ ? 1 : 0;
    return start(communicator, memory_.data() + kFirst + range.first - flags, range.count + flags,
                 algorithm);
  }
  // Averages a flag in host memory of its own.
  Result<collective::CollectiveRequest> start_flag(collective::Communicator& flags) const {
    return start(flags, flag_, 1, {});
  }

 private:
  // The elements begin on a cache line; the flag is right before them.
  static constexpr std::size_t kFirst = transport::kCacheLine / sizeof(float);

  static Result<std::span<float>> allocate_floats(collective::Communicator& communicator,
                                                  std::size_t count) {
    DUNLIN_ASSIGN(const auto memory, communicator.allocate(count * sizeof(float)));
    return std::span(reinterpret_cast<float*>(memory.data()), count);
  }
  static Result<collective::CollectiveRequest> start(collective::Communicator& communicator,
                                                     float* from, std::size_t count,
                                                     const std::string& algorithm) {
    collective::Call call;
    call.input = from;
    call.output = from;
    call.count = count;
    call.reduction = {collective::DataType::kFloat32, collective::ReduceOp::kAverage};
    call.algorithm = algorithm;
    return communicator.start(call);
  }

  std::span<float> memory_;
  float* flag_ = nullptr;
  bool has_own_flag_ = false;
};

}  // namespace dunlin::training
