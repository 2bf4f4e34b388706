// A program outside Dunlin's tree, built against the installed library only: each rank sends its
// number around a ring of queues, averages a model along a graph, and checks an all-reduce.
#include <dunlin/communicator.h>
#include <dunlin/queue.h>
#include <dunlin/stochastic_reduce.h>
#include <dunlin/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

using dunlin::Rank;
using dunlin::Status;

static constexpr auto kTimeout = std::chrono::seconds(30);

static Status wrong(const char* what) {
  return {dunlin::Code::kInternal, what};
}

static Status send_around(dunlin::Job& job) {
  const int rank = job.rank().value();
  const Rank next((rank + 1) % job.size());
  const Rank former((rank + job.size() - 1) % job.size());
  dunlin::QueueOptions options{.name = "ring", .in = {former}, .out = {next}, .slot_bytes = 64};
  DUNLIN_ASSIGN(auto queues, dunlin::Queues::create(job, options));
  DUNLIN_TRY(queues.try_send_inline(next, std::as_bytes(std::span(&rank, 1)), 0));
  DUNLIN_ASSIGN(const dunlin::Message message, queues.receive(former, kTimeout));
  const bool is_right = *reinterpret_cast<const int*>(message.data.data()) == former.value();
  DUNLIN_TRY(queues.release(former));
  DUNLIN_TRY(job.barrier());
  return is_right ? Status::ok() : wrong("another rank's number came");
}

static Status average_model(dunlin::Job& job) {
  DUNLIN_ASSIGN(const auto graph, dunlin::make_graph("complete", job.size()));
  dunlin::ReduceOptions options{.count = 1000};
  DUNLIN_ASSIGN(options.neighborhood, dunlin::neighborhood_of(graph, dunlin::Weighting::kUniform,
                                                              job.members().ranks, job.rank()));
  DUNLIN_ASSIGN(auto reduce, dunlin::StochasticReduce<float>::create(job, options));
  std::ranges::fill(reduce.model(), static_cast<float>(job.rank().value()));
  DUNLIN_TRY(reduce.reduce(kTimeout).status());
  DUNLIN_TRY(job.barrier());
  const float average = static_cast<float>(job.size() - 1) / 2;
  return std::abs(reduce.model()[999] - average) < 1e-6F ? Status::ok() : wrong("not the average");
}

static Status run() {
  DUNLIN_ASSIGN(auto job, dunlin::Job::join());
  DUNLIN_TRY(send_around(job));
  DUNLIN_TRY(average_model(job));
  DUNLIN_ASSIGN(auto world, dunlin::Communicator::create(job));
  double ones[] = {1, 1};
  DUNLIN_TRY(world.all_reduce(std::span<double>(ones), dunlin::ReduceOp::kSum));
  if (ones[1] != job.size()) return wrong("not the number of ranks");
  if (world.rank() == 0) std::printf("C++: Dunlin %s, %g ranks\n", dunlin::version(), ones[0]);
  return job.leave();
}

int main() {
  const Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status ? 0 : 1;
}
