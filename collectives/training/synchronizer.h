// Synchronizer: a Method for programs that compute in a thread of their own. The method and its
// fabric belong to a communication thread of this object. That thread progresses them while the
// computation goes on, and sleeps when there is nothing to do. All calls must come from one thread.
// A blocking call returns kDeadlineExceeded after `timeout`, with the peer that it waited for and
// why, and kPeerDead if a rank is dead that the method needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "collectives/training/method.h"

namespace dunlin::training {

class Synchronizer {
 public:
  // Collective over all ranks, like make_method(). Until this object is destroyed, only its thread
  // may use the fabric, and the bootstrap as well, because its waits progress the fabric.
  static Result<std::unique_ptr<Synchronizer>> create(transport::Fabric& fabric,
                                                      const MethodOptions& options,
                                                      Duration timeout);
  // Does not leave. If it is destroyed after an error, the other ranks find out by themselves.
  ~Synchronizer();
  Synchronizer(const Synchronizer&) = delete;
  Synchronizer& operator=(const Synchronizer&) = delete;

  bool is_server() const;
  // Servers only. Returns ok when all workers have left, and an error when no gradient has arrived
  // for `timeout`.
  Status serve();

  // The same as in Method. Between begin() and finish(), only the calling thread reads and writes
  // parameters. It may write each part of gradient() until it calls ready() for that part.
  std::span<float> parameters();
  std::span<float> gradient();
  std::span<float> velocity();
  // The same as in Method, but begin() and the calls after ready() block until the phase has ended.
  // The next call returns an error that occurred in between.
  Status begin(std::uint64_t iteration);
  Status ready(std::size_t first, std::size_t count);
  // Returns true if all workers end after this iteration.
  Result<bool> finish(float learning_rate, bool stop);
  Status leave();
  // Runs `work` in the communication thread, where it may use the bootstrap. To be called between
  // iterations, after finish() and before begin(). The result of `work` does not end the training.
  Status call(const std::function<Status(transport::Fabric&)>& work);

  MethodReport report() const;

 private:
  class Impl;
  explicit Synchronizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin::training
