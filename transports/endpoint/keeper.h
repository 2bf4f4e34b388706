// Keeper: makes progress for an endpoint whose program may call nothing for long, although messages
// wait to be sent or acknowledged, or a broken connection has to be renewed. NCCL and NIXL, for
// example, make no more calls once the requests that they know of are done.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/status.h"

namespace dunlin::transport::endpoint {

class Keeper {
 public:
  // From now on, a thread calls `progress` every kKeepInterval, under `lock`: the lock under which
  // the endpoint is used. It never waits for the lock, since its owner makes progress itself. Both
  // arguments must outlive the object.
  static Result<std::unique_ptr<Keeper>> start(std::mutex& lock, std::function<void()> progress);
  // The lock may be held.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

 private:
  Keeper(std::mutex& lock, std::function<void()> progress)
      : lock_(lock), progress_(std::move(progress)) {}
  void run();

  std::mutex& lock_;
  const std::function<void()> progress_;
  std::mutex mutex_;  // guards is_ending_
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace dunlin::transport::endpoint
