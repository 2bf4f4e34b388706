// Network: computes losses and gradients of an Architecture with LibTorch. Parameters and gradients
// lie in the caller's memory. No type of LibTorch is visible outside.
//
// On a GPU, it works on copies there. The parameters are copied to it before a computation, and the
// gradient of each segment is copied back when it is complete.
//
// One thread; another thread may call the `ready` of train() while train() waits for it. Exceptions
// of LibTorch come back as kInternal.
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
  DeviceKind device = DeviceKind::kAuto;  // auto: a GPU if LibTorch has one
  int local_rank = 0;                     // the ranks of a host take its GPUs in turn
  int threads = 1;                        // of LibTorch in this process
};

// What a network computes of a batch.
struct Judgment {
  double loss = 0;        // cross entropy, mean over the batch
  std::size_t right = 0;  // number of images whose class got the largest score
};

class Network {
 public:
  // kUnavailable when a GPU is asked for and there is none.
  static Result<std::unique_ptr<Network>> create(Architecture architecture,
                                                 const NetworkOptions& options);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const Architecture& architecture() const;
  // "cpu", "cuda:0"
  std::string device() const;
  // The running statistics of batch normalization, which train() updates. They belong to this
  // network and are not exchanged.
  std::span<float> statistics();

  // Sets the memory that it computes with: architecture().count elements each, which have to
  // outlive its use. Without a gradient the network can only be evaluated.
  Status bind(std::span<float> parameters, std::span<float> gradient);

  // Says that this part of the gradient is final.
  using Ready = std::function<Status(std::size_t first, std::size_t count)>;
  // Overwrites the gradient, and calls `ready` once for each segment, from the last to the first,
  // as soon as backward propagation has finished it. kOutOfRange, before the first call of `ready`,
  // if the loss is no finite number. Returns the first error of `ready`.
  Result<Judgment> train(const Batch& batch, const Ready& ready);
  // Uses the running statistics, and changes nothing.
  Result<Judgment> evaluate(const Batch& batch);

 private:
  class Impl;
  explicit Network(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin::cnn
