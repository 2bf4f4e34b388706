#include "tools/dunlin-perf/benchmarks/fused_limit.h"

#include <algorithm>

#include "collectives/kernels/gpu/arguments.h"
#include "tools/dunlin-perf/benchmarks/call_means.h"

namespace dunlin::perf {
namespace {

constexpr std::size_t kAlignment = 256;  // of each input and output, as of the driver's memory

std::size_t rounded_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Result<std::unique_ptr<FusedLimit>> FusedLimit::create(Job& job, const Options& options,
                                                       Subject& subject) {
  const auto ranks = static_cast<std::size_t>(job.size());
  if (job.gpu() == nullptr || ranks > collective::gpu::kMostInputs ||
      subject.call().collective != collective::Collective::kAllReduce)
    return std::unique_ptr<FusedLimit>();
  std::vector<double> failed{0};
  const auto is_first = [&](const GpuOfRank& gpu) {
    return gpu.pci_bus_id == job.gpus().front().pci_bus_id;
  };
  if (job.is_root() && !std::ranges::all_of(job.gpus(), is_first)) failed[0] = 1;
  std::unique_ptr<FusedLimit> limit(new FusedLimit(job, ranks));
  if (!limit->open(options, subject).is_ok()) failed[0] = 1;
  DUNLIN_TRY(maximize(subject.host_communicator(), failed));
  if (failed[0] > 0) limit.reset();
  return limit;
}

// Rank 0 has room for all elements, the others for their share.
Status FusedLimit::open(const Options& options, const Subject& subject) {
  const auto& driver = job_.gpu()->driver();
  const int device = job_.gpu()->device().number;
  DUNLIN_ASSIGN(kernels_, collective::GpuKernels::load(driver, device));
  DUNLIN_ASSIGN(stream_, driver->create_stream(device));
  const std::size_t largest = std::max(*std::ranges::max_element(options.sizes), subject.size());
  const std::size_t each = rounded_up(job_.is_root() ? largest : largest / ranks_ + sizeof(double));
  DUNLIN_ASSIGN(memory_, MemoryRegion::allocate_on_gpu(driver, device, 2 * ranks_ * each));
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    std::byte* const input = memory_->data() + 2 * rank * each;
    inputs_.push_back(input);
    targets_.push_back(subject.is_in_place() ? input : input + each);
  }
  return Status::ok();
}

Status FusedLimit::run(const collective::Call& call, std::size_t count) {
  DUNLIN_TRY(kernels_->reduce(*stream_, call.reduction, inputs_, targets_, count, ranks_));
  const Clock& clock = job_.fabric().clock();
  return await(*stream_, clock, clock.now() + job_.config().deadline, "a kernel");
}

}  // namespace dunlin::perf
