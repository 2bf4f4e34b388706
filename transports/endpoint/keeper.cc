#include "transports/endpoint/keeper.h"

#include "runtime/bootstrap/service_thread.h"
#include "transports/endpoint/constants.h"

namespace dunlin::transport::endpoint {

Result<std::unique_ptr<Keeper>> Keeper::start(std::mutex& lock, std::function<void()> progress) {
  std::unique_ptr<Keeper> keeper(new Keeper(lock, std::move(progress)));
  DUNLIN_ASSIGN(keeper->thread_, bootstrap::start_service_thread(
                                     "dunlin-keeper", [raw = keeper.get()] { raw->run(); }));
  return keeper;
}

Keeper::~Keeper() {
  {
    const std::lock_guard guard(mutex_);
    is_ending_ = true;
  }
  ends_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Keeper::run() {
  std::unique_lock guard(mutex_);
  while (!ends_.wait_for(guard, kKeepInterval, [this] { return is_ending_; })) {
    guard.unlock();
    if (const std::unique_lock lock(lock_, std::try_to_lock); lock) progress_();
    guard.lock();
  }
}

}  // namespace dunlin::transport::endpoint
