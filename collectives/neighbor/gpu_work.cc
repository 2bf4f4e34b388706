#include "collectives/neighbor/gpu_work.h"

#include <fmt/format.h>

#include "collectives/kernels/gpu/gpu_memory.h"
#include "runtime/gpu/cuda_driver.h"
#include "runtime/log.h"

namespace dunlin::collective::neighbor {

Result<std::unique_ptr<GpuWork>> GpuWork::create(transport::Fabric& fabric, int device) {
  DUNLIN_ASSIGN(auto driver, load_cuda_driver());
  DUNLIN_ASSIGN(auto kernels, GpuKernels::load(driver, device));
  DUNLIN_ASSIGN(auto stream, driver->create_stream(device));
  return std::unique_ptr<GpuWork>(
      new GpuWork(fabric, std::move(driver), std::move(kernels), std::move(stream)));
}

GpuWork::~GpuWork() {
  settle();
}

Status GpuWork::check(const NeighborCall& call) const {
  if (call.sources.size() >= gpu::kMostInputs) {
    return {Code::kInvalidArgument, fmt::format("{} sources; an average on a GPU has at most {}",
                                                call.sources.size(), gpu::kMostInputs - 1)};
  }
  const std::size_t size = call.count * size_of(call.type);
  if (size == 0) return Status::ok();
  const auto check = [&](std::string_view what, const void* data) {
    return check_gpu_memory(*driver_, device(), what, data, size, call.type,
                            "this exchange averages");
  };
  DUNLIN_TRY(check("input", call.input));
  return check("output", call.output);
}

template <typename Start>
Status GpuWork::run(std::string_view what, const Start& start) {
  if (!failure_.is_ok()) return failure_;
  if (unused_.empty()) {
    auto event = driver_->create_event(device());
    if (!event) return std::move(event).status().with_context(what);
    unused_.push_back(std::move(event).value());
  }
  Status status = start();
  if (!status.is_ok()) return std::move(status).with_context(what);
  ++started_;
  if (!stay_awake_) stay_awake_.emplace(fabric_);
  std::unique_ptr<GpuEvent> event = std::move(unused_.back());
  unused_.pop_back();
  status = event->record(stream_->native());
  in_progress_.push_back({started_, std::move(event)});
  if (status.is_ok()) return status;
  settle();  // no event would tell when the work is done
  return std::move(status).with_context(what);
}

Status GpuWork::delay(GpuEvent* event) {
  if (event == nullptr) return Status::ok();
  return event->delay(stream_->native()).with_context("waiting for the caller's work on a GPU");
}

Status GpuWork::copy(void* to, const void* from, std::size_t size) {
  return run("a copy on a GPU", [&] { return stream_->copy_on_device(to, from, size); });
}

Status GpuWork::average(DataType type, const std::byte* own, std::byte* output, std::size_t count,
                        double self_weight, std::span<const std::byte* const> inputs,
                        std::span<const double> weights) {
  return run("an average on a GPU", [&] {
    return kernels_->weighted_average(*stream_, type, own, output, count, self_weight, inputs,
                                      weights);
  });
}

void GpuWork::free_later(std::shared_ptr<MemoryRegion> memory) {
  if (!is_done(started_)) freed_.push_back({started_, std::move(memory)});
}

void GpuWork::finish(Ticket ticket) {
  done_ = ticket;
  while (!in_progress_.empty() && is_done(in_progress_.front().ticket)) {
    unused_.push_back(std::move(in_progress_.front().event));
    in_progress_.pop_front();
  }
  while (!freed_.empty() && is_done(freed_.front().ticket)) freed_.pop_front();
  if (in_progress_.empty()) stay_awake_.reset();
}

void GpuWork::progress() {
  while (!in_progress_.empty()) {
    Status status = in_progress_.front().event->poll();
    if (status.is_busy()) return;
    if (!status.is_ok()) {
      failure_ = std::move(status).with_context("work on a GPU");
      return settle();
    }
    finish(in_progress_.front().ticket);
  }
}

// A GPU that can't go on says so at once.
void GpuWork::settle() {
  if (in_progress_.empty()) return;
  const TimePoint deadline = fabric_.clock().now() + fabric_.config().deadline;
  Status status = await(*stream_, fabric_.clock(), deadline, "work on a GPU");
  if (failure_.is_ok()) failure_ = std::move(status);
  finish(started_);
}

}  // namespace dunlin::collective::neighbor
