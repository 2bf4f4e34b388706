#include "bindings/nccl/shared_endpoint.h"

#include <algorithm>

namespace dunlin::nccl {

const Clock& SharedEndpoint::clock() {
  // Never destroyed: connections may end at the end of the process.
  static const Clock& kClock = *new SteadyClock;
  return kClock;
}

Result<std::shared_ptr<SharedEndpoint>> SharedEndpoint::create(const Config& config,
                                                               bool is_host_only) {
  auto made = std::make_shared<SharedEndpoint>();
  made->config = &config;
  DUNLIN_ASSIGN(made->endpoint,
                transport::Endpoint::create(config, clock(), {.is_host_only = is_host_only}));
  DUNLIN_ASSIGN(made->keeper,
                transport::endpoint::Keeper::start(made->mutex, [shared = made.get()] {
                  shared->endpoint->progress();
                  if (shared->on_keep) shared->on_keep();
                }));
  return made;
}

void SharedEndpoint::end(std::span<std::unique_ptr<transport::Connection>> connections) {
  std::unique_lock lock(mutex);
  (void)await(lock, TimePoint::max(), [&] {
    // All of them prepare their ends at the same time.
    const auto left =
        std::ranges::count_if(connections, [](auto& each) { return !each->finish(); });
    if (left == 0) return Status::ok();
    endpoint->progress();
    return Status::busy();
  });
  for (auto& connection : connections) connection.reset();
}

}  // namespace dunlin::nccl
