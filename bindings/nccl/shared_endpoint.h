// SharedEndpoint: an endpoint, its lock, and its keeper. The comms and groups that have their
// connections from the endpoint use it under the lock.
#pragma once

#include <memory>
#include <mutex>
#include <span>

#include "runtime/clock.h"
#include "runtime/config.h"
#include "transports/endpoint/endpoint.h"
#include "transports/endpoint/keeper.h"

namespace dunlin::nccl {

struct SharedEndpoint {
  std::mutex mutex;
  std::unique_ptr<transport::Endpoint> endpoint;
  const Config* config = nullptr;
  // NCCL makes no calls while it has nothing to test.
  std::unique_ptr<transport::endpoint::Keeper> keeper;

  static Result<std::shared_ptr<SharedEndpoint>> create(const Config& config, bool is_host_only);
  static const Clock& clock();
  // Ends the connections, and waits as transports/endpoint/connection.h says, without the lock. So
  // the endpoint's other connections go on meanwhile.
  void end(std::span<std::unique_ptr<transport::Connection>> connections);
};

}  // namespace dunlin::nccl
