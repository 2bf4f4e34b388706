// dunlin-perf: measures puts, notifications, channels, barriers, collectives and reduces between
// the ranks of a job.
#include <fmt/format.h>

#include <thread>

#include "runtime/log.h"
#include "runtime/print.h"
#include "tools/dunlin-perf/benchmarks.h"
#include "tools/dunlin-perf/collective.h"
#include "tools/dunlin-perf/meeting.h"

namespace dunlin::perf {

namespace {

bool takes_pairs(Bench bench) {
  return bench != Bench::kBarrier && bench != Bench::kMutex && bench != Bench::kConsistency &&
         bench != Bench::kTune && bench != Bench::kNeighborAllReduce && bench != Bench::kPartial &&
         bench != Bench::kGroups && bench != Bench::kStragglerRing && !collective_of(bench);
}

Status check_size(const Options& options, int size) {
  const bool pairs = takes_pairs(options.bench);
  if (size >= 2 && !(pairs && size % 2 != 0)) return Status::ok();
  const char* const name = to_string(options.bench);
  return {Code::kInvalidArgument,
          fmt::format(
              "{} needs {}; this job has {}. Start it with: dunlin-run -n 2 dunlin-perf {}, "
              "or see --listen and --connect",
              name, pairs ? "an even number of ranks, 2 or more" : "2 ranks or more", size, name)};
}

Status run(const Options& options, Job& job) {
  DUNLIN_ASSIGN(const auto output, Output::open(job.is_root() ? options.json : ""));
  switch (options.bench) {
    case Bench::kPut:
      return run_put(options, job, *output);
    case Bench::kPutLatency:
      return run_put_latency(options, job, *output);
    case Bench::kPutNotify:
    case Bench::kNotify:
      return run_put_notify(options, job, *output);
    case Bench::kGet:
      return run_get(options, job, *output);
    case Bench::kAtomic:
      return run_atomic(options, job, *output);
    case Bench::kChannel:
      return run_channel(options, job, *output);
    case Bench::kBarrier:
      return run_barrier(options, job, *output);
    case Bench::kMutex:
      return run_mutex(options, job, *output);
    case Bench::kWindow:
      return run_window(options, job, *output);
    case Bench::kAllReduce:
    case Bench::kReduceScatter:
    case Bench::kAllGather:
    case Bench::kBroadcast:
    case Bench::kAllToAll:
    case Bench::kReduce:
      return run_collective(options, job, *output);
    case Bench::kNeighborAllReduce:
      return run_neighbor_all_reduce(options, job, *output);
    case Bench::kPartial:
      return run_partial(options, job, *output);
    case Bench::kGroups:
      return run_groups(options, job, *output);
    case Bench::kOverlap:
      return run_overlap(options, job, *output);
    case Bench::kStragglerRing:
      return run_straggler_ring(options, job, *output);
    case Bench::kTune:
      return run_tune(options, job, *output);
    case Bench::kConsistency:
      return run_consistency(options, job, *output);
  }
  return Status::ok();
}

Status measure(const Options& options, const Config& config, std::unique_ptr<Bootstrap> bootstrap) {
  DUNLIN_ASSIGN(const auto job, Job::open(options, config, std::move(bootstrap)));
  DUNLIN_TRY(run(options, *job));
  return job->finish();
}

Status measure_as_told(const Options& options, const Config& config,
                       const Environment& environment) {
  DUNLIN_ASSIGN(auto bootstrap, options.start == Start::kConnect
                                    ? connect(options, config, environment)
                                    : Bootstrap::join(config, environment));
  // Said once, by rank 0.
  const bool is_root = bootstrap->rank() == Rank(0);
  if (Status status = check_size(options, bootstrap->size()); !status.is_ok()) {
    return is_root ? std::move(status) : Status(Code::kInvalidArgument, "");
  }
  return measure(options, config, std::move(bootstrap));
}

// What the client wants, as this side does it.
Options merged(const Options& own, const Shared& wanted) {
  Options options = own;
  static_cast<Shared&>(options) = wanted;
  return options;
}

Status serve_next(Listener& listener, const Options& options, const Config& config,
                  bool& has_come) {
  Listener::Guest guest;
  Status status = listener.accept(guest);
  has_come = !guest.name.empty();
  if (!has_come) return status;
  const char* const bench = to_string(guest.options.bench);
  if (status.is_ok()) {
    DUNLIN_TRY(print(fmt::format("serving {}: {}\n", guest.name, bench)));
    status = measure(merged(options, guest.options), config, std::move(guest.bootstrap));
  }
  if (!status.is_ok()) return std::move(status).with_context("serving " + guest.name);
  return print(fmt::format("{}: {} is done\n", guest.name, bench));
}

int fail(const Status& status) {
  if (!status.message().empty()) {
    print_error(fmt::format("dunlin-perf: {}\n", status.to_string()));
  }
  return status.code() == Code::kInvalidArgument ? kUsage : kFailure;
}

Status listen(const Options& options, const Config& config) {
  Listener listener(options, config);
  DUNLIN_TRY(listener.open());
  for (;;) {
    Status status;
    bool has_come = false;
    // A thread for each: it will be bound to a core, and what serves the next client must not be.
    std::thread([&] { status = serve_next(listener, options, config, has_come); }).join();
    if (!options.keeps_listening || !has_come) return status;
    if (!status.is_ok()) fail(status);
  }
}

Status start(const Options& options) {
  const Environment environment = Environment::of_process();
  DUNLIN_ASSIGN(const Config config, Config::parse(environment));
  configure_log(config.log_level, Rank());
  if (options.start != Start::kLauncher) DUNLIN_TRY(check_unlaunched(environment));
  return options.start == Start::kListen ? listen(options, config)
                                         : measure_as_told(options, config, environment);
}

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  const Status status = start(*options);
  return status.is_ok() ? 0 : fail(status);
}

}  // namespace
}  // namespace dunlin::perf

int main(int argc, char** argv) {
  return dunlin::perf::main(argc, argv);
}
