// Averages with neighbors that change in each step: in step k each rank sends to the rank at
// distance 2^k, so that with a power of two of ranks log2(n) steps give the average of all.
//
//   dunlin-run -n 4 neighbor_average
#include <dunlin/graph_properties.h>
#include <dunlin/neighbor.h>

#include <cmath>
#include <cstdio>
#include <vector>

using dunlin::Rank;
using dunlin::Status;

static Status average(dunlin::Job& job) {
  DUNLIN_ASSIGN(auto world, dunlin::Communicator::create(job));
  DUNLIN_ASSIGN(auto neighbors, dunlin::Neighbors::create(job));
  std::vector<double> x(1000, job.rank().value());
  for (std::uint64_t step = 0; (1 << step) < job.size(); ++step) {
    const dunlin::StepPeers peers =
        dunlin::one_peer_exponential(job.size(), job.rank().value(), step);
    dunlin::NeighborCall call{.name = "x", .input = x.data(), .output = x.data()};
    call.count = x.size();
    call.type = dunlin::DataType::kFloat64;
    call.self_weight = 0.5;
    for (const int from : peers.from) call.sources.push_back({Rank(from), 0.5});
    for (const int to : peers.to) call.destinations.push_back({Rank(to), 1.0});
    DUNLIN_TRY(dunlin::check_neighbors(world, call));  // while developing; it costs an all-gather
    DUNLIN_TRY(neighbors.average(call));
  }
  // How far the ranks are apart: each gathers what the next one has.
  std::vector<dunlin::Bytes> gathered;
  dunlin::NeighborCall call{.name = "check", .input = x.data(), .count = 1};
  call.type = dunlin::DataType::kFloat64;
  call.sources = {{Rank((job.rank().value() + 1) % job.size())}};
  call.destinations = {{Rank((job.rank().value() + job.size() - 1) % job.size())}};
  DUNLIN_TRY(neighbors.gather(call, gathered));
  const double next = *reinterpret_cast<const double*>(gathered.front().data());
  const bool is_power_of_two = (job.size() & (job.size() - 1)) == 0;
  if (is_power_of_two && (x.back() != (job.size() - 1) / 2.0 || next != x.front()))
    return {dunlin::Code::kInternal, "not the average of all ranks"};
  if (job.rank().value() == 0) std::printf("x is %g here and %g at the next rank\n", x[0], next);
  return world.barrier();
}

static Status run() {
  DUNLIN_ASSIGN(auto job, dunlin::Job::join());
  if (job.size() < 2) return {dunlin::Code::kInvalidArgument, "needs two ranks or more"};
  DUNLIN_TRY(average(job));
  return job.leave();
}

int main() {
  const Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status ? 0 : 1;
}
