#include "bindings/nccl/shared_endpoint.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace dunlin::nccl {

const Clock& SharedEndpoint::clock() {
  static const SteadyClock kClock;
  return kClock;
}

Result<std::shared_ptr<SharedEndpoint>> SharedEndpoint::create(const Config& config,
                                                               bool is_host_only) {
  auto made = std::make_shared<SharedEndpoint>();
  made->config = &config;
  DUNLIN_ASSIGN(made->endpoint,
                transport::Endpoint::create(config, clock(), {.is_host_only = is_host_only}));
  DUNLIN_ASSIGN(made->keeper,
                transport::endpoint::Keeper::start(
                    made->mutex, [endpoint = made->endpoint.get()] { endpoint->progress(); }));
  return made;
}

void SharedEndpoint::end(std::span<std::unique_ptr<transport::Connection>> connections) {
  // Long enough for another thread to take the lock.
  constexpr auto kPause = std::chrono::microseconds(50);
  std::unique_lock lock(mutex);
  // All of them prepare their ends at the same time.
  const auto are_finished = [&] {
    return std::ranges::count_if(connections, [](const auto& each) { return each->finish(); }) ==
           std::ssize(connections);
  };
  while (!are_finished()) {
    endpoint->progress();
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
  for (auto& connection : connections) connection.reset();
}

}  // namespace dunlin::nccl
