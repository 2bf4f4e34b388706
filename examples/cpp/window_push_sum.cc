// Push-sum in windows: each rank deposits a half of its tensor with a neighbor, keeps the other
// half, and waits for no rank. Tensor divided by p approaches the average, on any directed graph
// that is strongly connected.
//
//   dunlin-run -n 4 window_push_sum
#include <dunlin/barrier.h>
#include <dunlin/graph.h>
#include <dunlin/window.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

using dunlin::Status;
using dunlin::WeightedRank;

static constexpr auto kTimeout = std::chrono::seconds(30);
static constexpr int kRounds = 60;

static Status push_sum(dunlin::Job& job) {
  DUNLIN_ASSIGN(const dunlin::Graph graph, dunlin::make_graph("ring", job.size()));
  dunlin::WindowOptions options;
  options.name = "push-sum";
  options.count = 1000;
  options.is_zeroed = true;
  DUNLIN_ASSIGN(options.neighborhood, dunlin::neighborhood_of(graph, dunlin::Weighting::kUniform,
                                                              job.members().ranks, job.rank()));
  const std::vector<double> initial(options.count, job.rank().value());
  DUNLIN_ASSIGN(auto window, dunlin::Window<double>::create(job, options, initial));
  std::vector<WeightedRank> to;
  for (const dunlin::Rank rank : options.neighborhood.out)
    to.push_back({rank, 1.0 / static_cast<double>(options.neighborhood.out.size() + 1)});
  const double kept = 1.0 / static_cast<double>(to.size() + 1);

  // The ranks run free of one another in a training program. Here a barrier in each round makes the
  // result exact enough to check.
  DUNLIN_ASSIGN(auto barrier, dunlin::Barrier::create(job, "round"));
  for (int round = 0; round < kRounds; ++round) {
    DUNLIN_TRY(window.accumulate(to, kept));
    DUNLIN_TRY(barrier.wait(kTimeout));
    job.progress();
    DUNLIN_TRY(window.collect().status());
  }
  const double estimate = window.tensor().front() / window.p();
  const double average = (job.size() - 1) / 2.0;
  if (std::abs(estimate - average) > 1e-2)
    return {dunlin::Code::kInternal, "the estimate is " + std::to_string(estimate)};
  if (job.rank().value() == 0) std::printf("estimate %.6f, average %g\n", estimate, average);
  // Ranks end together. While they wait, they take over what was deposited with them last.
  DUNLIN_TRY(window.flush(kTimeout));
  return job.barrier();
}

static Status run() {
  DUNLIN_ASSIGN(auto job, dunlin::Job::join());
  DUNLIN_TRY(push_sum(job));
  return job.leave();
}

int main() {
  const Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status ? 0 : 1;
}
