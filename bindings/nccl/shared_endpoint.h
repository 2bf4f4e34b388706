// SharedEndpoint: an endpoint, its lock, and its keeper. The comms and groups that have their
// connections from the endpoint use it under the lock.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "runtime/clock.h"
#include "runtime/config.h"
#include "transports/endpoint/endpoint.h"
#include "transports/endpoint/keeper.h"

namespace dunlin::nccl {

struct SharedEndpoint {
  std::mutex mutex;
  std::unique_ptr<transport::Endpoint> endpoint;
  const Config* config = nullptr;
  // What the keeper calls besides, under the lock; may be empty.
  std::function<void()> on_keep;
  // NCCL makes no calls while it has nothing to test.
  std::unique_ptr<transport::endpoint::Keeper> keeper;

  static Result<std::shared_ptr<SharedEndpoint>> create(const Config& config, bool is_host_only);
  static const Clock& clock();
  // Ends the connections, and waits as transports/endpoint/connection.h says, without the lock. So
  // the endpoint's other connections go on meanwhile.
  void end(std::span<std::unique_ptr<transport::Connection>> connections);
  // Calls `ready` under the lock until it returns something other than kBusy, and returns that.
  // kBusy after the deadline. Other threads can take the lock between two calls.
  template <typename Ready>
  static Status await(std::unique_lock<std::mutex>& lock, TimePoint deadline, Ready&& ready) {
    for (;;) {
      Status status = ready();
      if (!status.is_busy() || clock().now() >= deadline) return status;
      lock.unlock();
      std::this_thread::sleep_for(kPause);
      lock.lock();
    }
  }

 private:
  // Long enough for another thread to take the lock.
  static constexpr auto kPause = std::chrono::microseconds(50);
};

}  // namespace dunlin::nccl
