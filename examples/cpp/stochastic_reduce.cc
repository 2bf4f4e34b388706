// Stochastic reduce on an expander graph: each rank averages its model with those of its neighbors
// only, and waits for no other rank; all models still approach the average of all.
//
//   dunlin-run -n 4 stochastic_reduce [GRAPH]
#include <dunlin/stochastic_reduce.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

using dunlin::Status;

static constexpr auto kTimeout = std::chrono::seconds(30);

static Status train(dunlin::Job& job, const char* name) {
  DUNLIN_ASSIGN(const dunlin::Graph graph, dunlin::make_graph(name, job.size()));
  DUNLIN_ASSIGN(const auto matrix, dunlin::MixingMatrix::make(graph, dunlin::Weighting::kUniform));
  DUNLIN_ASSIGN(const dunlin::Spectrum spectrum, dunlin::spectrum(matrix));
  const double rounds = dunlin::mixing_rounds(spectrum, 1e-6).value_or(200);

  dunlin::ReduceOptions options;
  options.count = 1000;
  DUNLIN_ASSIGN(options.neighborhood, dunlin::neighborhood_of(graph, dunlin::Weighting::kUniform,
                                                              job.members().ranks, job.rank()));
  DUNLIN_ASSIGN(auto reduce, dunlin::StochasticReduce<float>::create(job, options));
  std::ranges::fill(reduce.model(), static_cast<float>(job.rank().value()));
  for (int step = 0; step < rounds; ++step) {
    // A training program computes on reduce.model() here.
    DUNLIN_ASSIGN(const dunlin::ReduceReport report, reduce.reduce(kTimeout));
    if (report.inputs != options.neighborhood.in.size())
      return {dunlin::Code::kInternal, "a reduce left a neighbor's model out"};
  }
  const double average = (job.size() - 1) / 2.0;
  const double error = std::abs(reduce.model().front() - average);
  if (error > 1e-3) return {dunlin::Code::kInternal, "the models did not come together"};
  if (job.rank().value() == 0)
    std::printf("%s: spectral gap %.3f, all models agree after %.0f reduces\n", name, spectrum.gap,
                rounds);
  return job.barrier();
}

static Status run(const char* graph) {
  DUNLIN_ASSIGN(auto job, dunlin::Job::join());
  DUNLIN_TRY(train(job, graph));
  return job.leave();
}

int main(int argc, char** argv) {
  const Status status = run(argc > 1 ? argv[1] : "root-expander");
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status ? 0 : 1;
}
