// Network: computes losses and gradients of an Architecture with LibTorch, on parameters and into
// gradients that lie in the caller's memory. No type of LibTorch is seen from outside.
//
// On a GPU, it works on copies of its own there: the parameters are copied to it before a
// computation, and each segment's gradient from it when that is complete.
//
// One thread; the `ready` of train() may be called from another while train() waits for it. What
// LibTorch throws comes back as kInternal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "apps/cnn/architecture.h"
#include "apps/cnn/batches.h"
#include "runtime/status.h"

namespace dunlin::cnn {

enum class DeviceKind : std::uint8_t { kAuto, kCpu, kCuda };
Result<DeviceKind> parse_device(std::string_view name);  // "auto", "cpu", "cuda"

struct NetworkOptions {
  DeviceKind device = DeviceKind::kAuto;  // auto: a GPU where LibTorch has one
  int local_rank = 0;                     // the ranks of a host take its GPUs in turn
  int threads = 1;                        // of LibTorch in this process
};

// What a network makes of a batch.
struct Judgement {
  double loss = 0;        // cross entropy, the batch's mean
  std::size_t right = 0;  // images whose class got the largest score
};

class Network {
 public:
  // kUnavailable: a GPU is asked for and there is none.
  static Result<std::unique_ptr<Network>> create(Architecture architecture,
                                                 const NetworkOptions& options);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const Architecture& architecture() const;
  // "cpu", "cuda:0"
  std::string device() const;
  // Of the running statistics of batch normalisation, which train() updates. They are this
  // network's own: not exchanged.
  std::span<float> statistics();

  // What it computes with from now on: architecture().count elements each, which outlive its use.
  // Without a gradient it can only be evaluated.
  Status bind(std::span<float> parameters, std::span<float> gradient);

  // This part of the gradient is final.
  using Ready = std::function<Status(std::size_t first, std::size_t count)>;
  // Overwrites the gradient, and calls `ready` for each segment once, as soon as backward
  // propagation has got there: from the last to the first. kOutOfRange, before `ready` was called,
  // if the loss is no finite number. The first error of `ready` is returned.
  Result<Judgement> train(const Batch& batch, const Ready& ready);
  // With running statistics, and changes nothing.
  Result<Judgement> evaluate(const Batch& batch);

 private:
  class Impl;
  explicit Network(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin::cnn
