#include "bindings/nccl/plugin.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bindings/nccl/log.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/gpu/cuda_driver.h"
#include "runtime/log.h"
#include "transports/libraries.h"

namespace dunlin::nccl {
namespace {

// At the end of the process, comms end before what their threads use is destroyed: CUDA's driver
// and OpenSSL are loaded before this is made.
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
  if (devices_.empty()) {
    gpu_ = load_cuda_driver();
    transport::load_libraries();
    static const AtExit kAtExit;
    DUNLIN_ASSIGN(devices_, find_devices(environment, gpu_));
  }
  log_to(log, devices_.front().config.log_level);
  for (const Device& device : devices_) {
    DUNLIN_INFO("device {}, {} Mb/s, {}", device.name, device.speed,
                device.gpu_access.is_ok()
                    ? "with GPU memory"
                    : fmt::format("host memory only: {}", device.gpu_access.message()));
  }
  return Status::ok();
}

Status Plugin::begin_context(abi::Logger logger) {
  DUNLIN_TRY(init(logger));
  ++contexts_;
  return Status::ok();
}

void Plugin::end_context() {
  if (--contexts_ > 0) return;
  connector_.clear();
  await_ends();
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

bool Plugin::reaches_gpus() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(devices_, [](const Device& each) { return each.gpu_access.is_ok(); });
}

Result<std::shared_ptr<GpuDriver>> Plugin::gpu() const {
  const std::lock_guard lock(mutex_);
  return gpu_;
}

void Plugin::close(std::unique_ptr<Comm> comm) {
  comm->detach();
  end(std::move(comm));
}

void Plugin::close(std::unique_ptr<Group> group) {
  group->detach();
  end(std::move(group));
}

void Plugin::end(std::shared_ptr<void> ending) {
  auto is_over = std::make_shared<std::atomic<bool>>(false);
  // Without a thread, it ends here.
  auto end = bootstrap::start_service_thread("dunlin-close",
                                             [ending = std::move(ending), is_over]() mutable {
                                               ending.reset();
                                               *is_over = true;
                                             });
  if (!end) {
    DUNLIN_WARN("a connection has ended in NCCL's thread: {}", end.status().message());
    return;
  }
  const std::lock_guard lock(mutex_);
  // NCCL may make and close connections for as long as it likes.
  std::erase_if(ends_, [](End& each) {
    if (!*each.is_over) return false;
    each.thread.join();
    return true;
  });
  ends_.push_back({std::move(*end), std::move(is_over)});
}

void Plugin::await_ends() {
  std::list<End> ends;
  {
    const std::lock_guard lock(mutex_);
    ends.swap(ends_);
  }
  for (End& end : ends) end.thread.join();
}

}  // namespace dunlin::nccl
