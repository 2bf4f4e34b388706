// The benchmarks, which have one file each. All are collective over the job; rank 0 prints.
#pragma once

#include "tools/dunlin-perf/job/job.h"
#include "tools/dunlin-perf/report/report.h"

namespace dunlin::perf {

Status run_put(const Options& options, Job& job, const Output& output);
Status run_put_latency(const Options& options, Job& job, const Output& output);
Status run_put_notify(const Options& options, Job& job, const Output& output);  // and notify
Status run_get(const Options& options, Job& job, const Output& output);
Status run_atomic(const Options& options, Job& job, const Output& output);
Status run_channel(const Options& options, Job& job, const Output& output);
Status run_barrier(const Options& options, Job& job, const Output& output);
Status run_mutex(const Options& options, Job& job, const Output& output);
Status run_window(const Options& options, Job& job, const Output& output);
Status run_collective(const Options& options, Job& job, const Output& output);
Status run_neighbor_all_reduce(const Options& options, Job& job, const Output& output);
Status run_partial(const Options& options, Job& job, const Output& output);
Status run_groups(const Options& options, Job& job, const Output& output);
Status run_overlap(const Options& options, Job& job, const Output& output);
Status run_straggler_ring(const Options& options, Job& job, const Output& output);
Status run_tune(const Options& options, Job& job, const Output& output);
Status run_consistency(const Options& options, Job& job, const Output& output);

}  // namespace dunlin::perf
