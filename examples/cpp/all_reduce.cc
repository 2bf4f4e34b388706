// Averages gradients over all ranks, in memory that the communicator uses without copying.
//
//   dunlin-run -n 4 all_reduce
#include <dunlin/communicator.h>

#include <algorithm>
#include <cstdio>

using dunlin::ReduceOp;
using dunlin::Status;

static Status run() {
  DUNLIN_ASSIGN(auto job, dunlin::Job::join());
  {
    DUNLIN_ASSIGN(auto world, dunlin::Communicator::create(job));
    DUNLIN_ASSIGN(const std::span<float> gradients, world.allocate<float>(100'000));
    std::ranges::fill(gradients, static_cast<float>(world.rank()));

    DUNLIN_TRY(world.all_reduce(gradients, ReduceOp::kAverage));

    const float expected = static_cast<float>(world.size() - 1) / 2;
    if (!std::ranges::all_of(gradients, [&](float value) { return value == expected; }))
      return {dunlin::Code::kInternal, "not the average of all ranks"};
    if (world.rank() == 0) std::printf("the average over %d ranks is %g\n", world.size(), expected);
    DUNLIN_TRY(world.barrier());
  }
  return job.leave();
}

int main() {
  const Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status ? 0 : 1;
}
