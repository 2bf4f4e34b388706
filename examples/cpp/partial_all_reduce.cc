// Averages within groups that differ from step to step; ranks of other groups take no part. With
// 2^k ranks, k steps of pairs give the average of all.
//
//   dunlin-run -n 4 partial_all_reduce
#include <dunlin/partial_all_reduce.h>

#include <algorithm>
#include <cstdio>

using dunlin::Rank;
using dunlin::Status;

static Status average(dunlin::Job& job) {
  DUNLIN_ASSIGN(auto partial, dunlin::PartialAllReduce::create(job));
  DUNLIN_ASSIGN(const std::span<float> model, partial.allocate<float>(10'000));
  const int rank = job.rank().value();
  std::ranges::fill(model, static_cast<float>(rank));
  std::uint64_t number = 0;
  for (int distance = 1; distance < job.size(); distance *= 2) {
    ++number;  // all ranks count alike, also those without a peer
    const int peer = rank ^ distance;
    if (peer >= job.size()) continue;
    dunlin::PartialCall call{.number = number, .members = {job.rank(), Rank(peer)}};
    call.input = model.data();
    call.output = model.data();
    call.count = model.size();
    DUNLIN_TRY(partial.run(call));
  }
  const bool is_power_of_two = (job.size() & (job.size() - 1)) == 0;
  if (is_power_of_two && model.back() != static_cast<float>(job.size() - 1) / 2)
    return {dunlin::Code::kInternal, "not the average of all ranks"};
  if (rank == 0)
    std::printf("after %d steps of pairs: %g\n", static_cast<int>(number), model.front());
  return job.barrier();
}

static Status run() {
  DUNLIN_ASSIGN(auto job, dunlin::Job::join());
  DUNLIN_TRY(average(job));
  return job.leave();
}

int main() {
  const Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status ? 0 : 1;
}
