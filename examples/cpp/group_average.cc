// Training in groups that are formed of the ranks that wait, so that a slow one holds up few: rank
// 0 takes longer for each iteration than the others.
//
//   dunlin-run -n 4 group_average
#include <dunlin/group_average.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

using dunlin::Status;

static constexpr auto kTimeout = std::chrono::seconds(30);
static constexpr std::uint64_t kIterations = 20;

// Stands for a gradient step, which pulls the model to this rank's own optimum.
static void compute(dunlin::Job& job, dunlin::GroupAverage& average) {
  const float optimum = static_cast<float>(job.rank().value());
  for (float& weight : average.model()) weight += 0.1F * (optimum - weight);
  const auto end = job.now() + std::chrono::microseconds(job.rank().value() == 0 ? 2000 : 200);
  while (job.now() < end) average.progress();
}

static Status train(dunlin::Job& job) {
  DUNLIN_ASSIGN(auto average, dunlin::GroupAverage::create(job, {.count = 1000, .group_size = 2}));
  for (std::uint64_t iteration = 0; iteration < kIterations; ++iteration) {
    compute(job, average);
    DUNLIN_TRY(average.run(iteration));
  }
  const float weight = average.model().front();
  DUNLIN_TRY(average.finish(kTimeout));
  const dunlin::GroupAverageStatistics done = average.statistics();
  if (done.iterations != kIterations || weight < 0 || weight > static_cast<float>(job.size()))
    return {dunlin::Code::kInternal, "an iteration was not synchronized"};
  std::printf("rank %d: %d groups, %d times alone, model %.2f\n", job.rank().value(),
              static_cast<int>(done.groups), static_cast<int>(done.alone), weight);
  return job.barrier();
}

static Status run() {
  DUNLIN_ASSIGN(auto job, dunlin::Job::join());
  DUNLIN_TRY(train(job));
  return job.leave();
}

int main() {
  const Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status ? 0 : 1;
}
