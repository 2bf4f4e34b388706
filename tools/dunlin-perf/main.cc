// dunlin-perf: measures puts, notifications, channels, barriers, collectives and reduces between
// the ranks of a job.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <thread>

#include "collectives/waiting/trace_to_death.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/log.h"
#include "runtime/print.h"
#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/job/meeting.h"

namespace dunlin::perf {

namespace {

struct Benchmark {
  Bench bench;
  Status (*run)(const Options&, Job&, const Output&);
  bool takes_pairs;  // ranks 0-1, 2-3, ... measure at the same time; otherwise all ranks together
};
constexpr Benchmark kBenchmarks[] = {
    {Bench::kPut, run_put, true},
    {Bench::kPutLatency, run_put_latency, true},
    {Bench::kPutNotify, run_put_notify, true},
    {Bench::kNotify, run_put_notify, true},
    {Bench::kGet, run_get, true},
    {Bench::kAtomic, run_atomic, true},
    {Bench::kChannel, run_channel, true},
    {Bench::kWindow, run_window, true},
    {Bench::kBarrier, run_barrier, false},
    {Bench::kMutex, run_mutex, false},
    {Bench::kAllReduce, run_collective, false},
    {Bench::kReduceScatter, run_collective, false},
    {Bench::kAllGather, run_collective, false},
    {Bench::kBroadcast, run_collective, false},
    {Bench::kAllToAll, run_collective, false},
    {Bench::kReduce, run_collective, false},
    {Bench::kNeighborAllReduce, run_neighbor_all_reduce, false},
    {Bench::kPartial, run_partial, false},
    {Bench::kGroups, run_groups, false},
    {Bench::kOverlap, run_overlap, false},
    {Bench::kStragglerRing, run_straggler_ring, false},
    {Bench::kTune, run_tune, false},
    {Bench::kConsistency, run_consistency, false},
};
static_assert(std::size(kBenchmarks) == std::size(kBenches));

const Benchmark& benchmark_of(const Options& options) {
  return *std::ranges::find(kBenchmarks, options.bench, &Benchmark::bench);
}

Status check_size(const Options& options, int size) {
  const bool pairs = benchmark_of(options).takes_pairs;
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
  DUNLIN_TRY(print_gpus(job, *output));
  return benchmark_of(options).run(options, job, *output);
}

Status measure(const Options& options, const Config& config, std::unique_ptr<Bootstrap> bootstrap) {
  DUNLIN_ASSIGN(const auto job, Job::open(options, config, std::move(bootstrap)));
  Status status = run(options, *job);
  if (status.is_ok()) status = job->finish();
  return collective::trace_to_death(job->fabric(), std::move(status));
}

Status join_and_measure(const Options& options, const Config& config,
                        const Environment& environment) {
  DUNLIN_ASSIGN(auto bootstrap, options.start == Start::kConnect
                                    ? connect(options, config, environment)
                                    : Bootstrap::join(config, environment));
  // Rank 0 alone prints the error.
  const bool is_root = bootstrap->rank() == Rank(0);
  if (Status status = check_size(options, bootstrap->size()); !status.is_ok()) {
    return is_root ? std::move(status) : Status(Code::kInvalidArgument, "");
  }
  return measure(options, config, std::move(bootstrap));
}

// What the client wants, with what belongs to this side alone.
Options merged(const Options& own, const Shared& wanted) {
  Options options = own;
  static_cast<Shared&>(options) = wanted;
  return options;
}

Status serve_next(Listener& listener, const Options& options, const Config& config,
                  bool& has_client) {
  Listener::Guest guest;
  Status status = listener.accept(guest);
  has_client = !guest.name.empty();
  if (!has_client) return status;
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
    bool has_client = false;
    // Each client gets a thread, which will be bound to a core. The main thread stays unbound.
    DUNLIN_ASSIGN(std::thread server, bootstrap::start_service_thread("dunlin-serve", [&] {
                    status = serve_next(listener, options, config, has_client);
                  }));
    server.join();
    if (!options.keeps_listening || !has_client) return status;
    if (!status.is_ok()) fail(status);
  }
}

Status start(const Options& options) {
  const Environment environment = Environment::of_process();
  DUNLIN_ASSIGN(const Config config, Config::parse(environment));
  configure_log(config.log_level, Rank());
  if (options.start != Start::kLauncher) DUNLIN_TRY(check_unlaunched(environment));
  return options.start == Start::kListen ? listen(options, config)
                                         : join_and_measure(options, config, environment);
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
