// Synchronizer: a Method for a thread that computes. The method and its fabric belong to a thread
// of this object's, which moves them on while the computation goes on, and sleeps when there is
// nothing to do. Calls come from one thread. Blocking ones end with kDeadlineExceeded after
// `timeout` (whom they wait for, for what), kPeerDead when somebody is gone whom the method needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "apps/training/method.h"

namespace dunlin::training {

class Synchronizer {
 public:
  // Collective over all ranks, as make_method(). Takes the fabric over: until this object is gone,
  // only its thread uses it; and the bootstrap, whose waits give the fabric progress.
  static Result<std::unique_ptr<Synchronizer>> create(transport::Fabric& fabric,
                                                      const MethodOptions& options,
                                                      Duration timeout);
  // Doesn't leave: after an error, others find out by themselves.
  ~Synchronizer();
  Synchronizer(const Synchronizer&) = delete;
  Synchronizer& operator=(const Synchronizer&) = delete;

  bool is_server() const;
  // Of a server: returns when all workers have left; with an error, too, once no worker's gradient
  // has come for `timeout`.
  Status serve();

  // As Method's. Between begin() and finish() only this thread reads and writes parameters, and
  // writes gradient(), part by part, until it is ready.
  std::span<float> parameters();
  std::span<float> gradient();
  std::span<float> velocity();
  // An error that has come up since is returned by the next call.
  Status begin(std::uint64_t iteration);
  Status ready(std::size_t first, std::size_t count);  // doesn't wait
  // True: all workers end here.
  Result<bool> finish(float learning_rate, bool stop);
  Status leave();

  MethodReport report() const;

 private:
  class Impl;
  explicit Synchronizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin::training
