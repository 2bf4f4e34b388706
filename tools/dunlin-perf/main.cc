// dunlin-perf: measures puts, notifications, channels, barriers and reduces between the ranks of a
// job.
#include <fmt/format.h>

#include "runtime/print.h"
#include "tools/dunlin-perf/benchmarks.h"

namespace dunlin::perf {

namespace {

std::string usage_error(const Options& options, const Job& job) {
  const char* const name = to_string(options.bench);
  const bool pairs = options.bench != Bench::kBarrier && options.bench != Bench::kConsistency;
  const char* const needed = pairs ? "an even number of ranks, 2 or more" : "2 ranks or more";
  if (job.size() >= 2 && !(pairs && job.size() % 2 != 0)) return "";
  return fmt::format("{} needs {}; this job has {}. Start it with: dunlin-run -n 2 dunlin-perf {}",
                     name, needed, job.size(), name);
}

Status run(const Options& options, Job& job) {
  DUNLIN_ASSIGN(const auto output, Output::open(job.is_root() ? options.json : ""));
  switch (options.bench) {
    case Bench::kPut:
      return run_put(options, job, *output);
    case Bench::kPutNotify:
    case Bench::kNotify:
      return run_put_notify(options, job, *output);
    case Bench::kChannel:
      return run_channel(options, job, *output);
    case Bench::kBarrier:
      return run_barrier(options, job, *output);
    case Bench::kConsistency:
      return run_consistency(options, job, *output);
  }
  return Status::ok();
}

int fail(const Status& status) {
  print_error(fmt::format("dunlin-perf: {}\n", status.to_string()));
  return status.code() == Code::kInvalidArgument ? kUsage : kFailure;
}

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  const auto job = Job::join(*options);
  if (!job) return fail(job.status());
  if (const std::string problem = usage_error(*options, **job); !problem.empty()) {
    if ((*job)->is_root()) print_error(fmt::format("dunlin-perf: {}\n", problem));
    return kUsage;
  }
  Status status = run(*options, **job);
  if (status.is_ok()) status = (*job)->finish();
  return status.is_ok() ? 0 : fail(status);
}

}  // namespace
}  // namespace dunlin::perf

int main(int argc, char** argv) {
  return dunlin::perf::main(argc, argv);
}
