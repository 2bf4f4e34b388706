// Times blocking calls of all ranks: the samples of the collectives, neighbor-all-reduce and
// partial.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "tools/dunlin-perf/benchmarks/plan.h"
#include "tools/dunlin-perf/job/job.h"
#include "tools/dunlin-perf/report/report.h"

namespace dunlin::perf {

// Spins until test() no longer returns kBusy.
template <typename Test>
Status poll_call(Job& job, const char* what, Test&& test) {
  Status status;
  const Rank neighbor((job.rank().value() + 1) % job.size());
  DUNLIN_TRY(job.poll(neighbor, what, job.config().deadline, [&] {
    status = test();
    return !status.is_busy();
  }));
  return status;
}

// Fills a row with the figures of what call_means() returned.
inline void take_means(Row& row, const std::vector<double>& means) {
  Histogram histogram;
  for (const double mean : means) histogram.add(mean);
  row.take(histogram, 1, false);
}

// Replaces each value by the largest that any rank has at its place. Collective.
inline Status maximize(collective::Communicator& communicator, std::vector<double>& values) {
  return communicator.all_reduce(values.data(), values.data(), values.size(),
                                 {collective::DataType::kFloat64, collective::ReduceOp::kMax});
}

// Returns for each chunk the mean time of `once()` on the rank where it is largest, in nanoseconds.
// A barrier precedes each chunk. `after(count)` comes after each chunk of so many calls.
template <typename Once, typename After>
Result<std::vector<double>> call_means(Job& job, collective::Communicator& communicator,
                                       const Plan& plan, std::uint64_t& iterations, Once&& once,
                                       After&& after) {
  const Clock& clock = job.fabric().clock();
  const TimePoint warming = clock.now();
  for (std::uint64_t i = 0; i < plan.warmup; ++i) DUNLIN_TRY(once());
  Pacer pacer(plan, (clock.now() - warming) / static_cast<std::int64_t>(plan.warmup));
  std::vector<double> means;
  for (;;) {
    DUNLIN_ASSIGN(const std::uint64_t count, job.next_chunk(plan, pacer));
    if (count == 0) break;
    DUNLIN_TRY(communicator.barrier());
    const TimePoint began = clock.now();
    for (std::uint64_t i = 0; i < count; ++i) DUNLIN_TRY(once());
    means.push_back(static_cast<double>((clock.now() - began).count()) /
                    static_cast<double>(count));
    iterations += count;
    DUNLIN_TRY(after(count));
  }
  DUNLIN_TRY(maximize(communicator, means));
  return means;
}
template <typename Once>
Result<std::vector<double>> call_means(Job& job, collective::Communicator& communicator,
                                       const Plan& plan, std::uint64_t& iterations, Once&& once) {
  return call_means(job, communicator, plan, iterations, std::forward<Once>(once),
                    [](std::uint64_t) { return Status::ok(); });
}

}  // namespace dunlin::perf
