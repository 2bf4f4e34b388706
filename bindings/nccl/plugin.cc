#include "bindings/nccl/plugin.h"

#include <fmt/format.h>

#include <utility>

#include "bindings/nccl/log.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/log.h"

namespace dunlin::nccl {
namespace {

// At the end of the process, comms end before what their threads use is destroyed.
struct AtExit {
  ~AtExit() { Plugin::instance().await_ends(); }
};

}  // namespace

Plugin& Plugin::instance() {
  static Plugin* const kPlugin = new Plugin();
  return *kPlugin;
}

Status Plugin::init(abi::Logger log) {
  const std::lock_guard lock(mutex_);
  const Environment environment = Environment::of_process();
  log_to(log, LogLevel::kWarn);
  static const AtExit kAtExit;
  if (devices_.empty()) {
    DUNLIN_ASSIGN(devices_, find_devices(environment));
  }
  log_to(log, devices_.front().config.log_level);
  for (const Device& device : devices_)
    DUNLIN_INFO("device {}, {} Mb/s", device.name, device.speed);
  return Status::ok();
}

int Plugin::device_count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(devices_.size());
}

Result<const Device*> Plugin::device(int number) const {
  const std::lock_guard lock(mutex_);
  if (number < 0 || static_cast<std::size_t>(number) >= devices_.size())
    return Status(Code::kOutOfRange, fmt::format("there is no device {}", number));
  return &devices_[static_cast<std::size_t>(number)];
}

void Plugin::close(std::unique_ptr<Comm> comm) {
  comm->detach();
  // Without a thread, the comm ends here.
  auto end = bootstrap::start_service_thread(
      "dunlin-close", [ending = std::move(comm)]() mutable { ending.reset(); });
  if (!end) {
    DUNLIN_WARN("a connection has ended in NCCL's thread: {}", end.status().message());
    return;
  }
  const std::lock_guard lock(mutex_);
  ends_.push_back(std::move(*end));
}

void Plugin::await_ends() {
  std::list<std::thread> ends;
  {
    const std::lock_guard lock(mutex_);
    ends.swap(ends_);
  }
  for (std::thread& end : ends) end.join();
}

}  // namespace dunlin::nccl
