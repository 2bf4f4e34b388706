// Computes the gradients of one layer while those of the layer before are averaged.
//
//   dunlin-run -n 4 overlap
#include <dunlin/communicator.h>

#include <algorithm>
#include <cstdio>
#include <vector>

using dunlin::Communicator;
using dunlin::ReduceOp;
using dunlin::Status;

static constexpr std::size_t kLayers = 8;
static constexpr std::size_t kWeights = 20'000;

// Stands for a layer's backward pass.
static void compute(std::span<double> gradients, std::size_t layer, int rank) {
  std::ranges::fill(gradients, static_cast<double>(layer) + rank);
}

static Status run() {
  DUNLIN_ASSIGN(auto job, dunlin::Job::join());
  {
    DUNLIN_ASSIGN(auto world, Communicator::create(job));
    DUNLIN_ASSIGN(const std::span<double> all, world.allocate<double>(kLayers * kWeights));
    std::vector<Communicator::Request> requests;
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const std::span<double> gradients = all.subspan(layer * kWeights, kWeights);
      compute(gradients, layer, world.rank());
      DUNLIN_ASSIGN(const auto request, world.start_all_reduce(gradients, ReduceOp::kSum));
      requests.push_back(request);
      world.progress();
    }
    for (const Communicator::Request& request : requests) DUNLIN_TRY(world.wait(request));

    const int ranks = world.size();
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const double expected = static_cast<double>(layer) * ranks + ranks * (ranks - 1) / 2.0;
      if (all[layer * kWeights] != expected || all[(layer + 1) * kWeights - 1] != expected)
        return {dunlin::Code::kInternal, "a layer's gradients are not the sum over all ranks"};
    }
    if (world.rank() == 0) std::printf("%zu layers were reduced while computing\n", kLayers);
    DUNLIN_TRY(world.barrier());
  }
  return job.leave();
}

int main() {
  const Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status ? 0 : 1;
}
