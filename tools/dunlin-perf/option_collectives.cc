// The options of the benchmarks that take all ranks.
#include "tools/dunlin-perf/option_parser.h"

namespace dunlin::perf {

void Parser::declare_collectives(CLI::App& app) {
  add_collective(app, Bench::kAllReduce, "all-reduce of all ranks, one blocking call");
  add_collective(app, Bench::kReduceScatter, "reduce-scatter; sizes are of the input");
  add_collective(app, Bench::kAllGather, "all-gather; sizes are of the output");
  add_collective(app, Bench::kBroadcast, "broadcast from rank 0, call after call");
  add_collective(app, Bench::kAllToAll, "all-to-all; sizes are of the input");
  add_collective(app, Bench::kReduce, "reduce to rank 0, call after call");
  CLI::App* const neighbors =
      add(app, Bench::kNeighborAllReduce,
          "each rank's weighted average with its neighbours in a graph, one blocking call");
  declare_sizes(*neighbors);
  neighbors
      ->add_option("--tensors", options_.collective.tensors,
                   "averages of so many tensors of each size, started one after the other and then "
                   "waited for; beside them the same without fusion")
      ->check(CLI::Range(1U, kMostTensors))
      ->capture_default_str()
      ->group(kMeasurement);
  neighbors
      ->add_option("--graph", options_.collective.graph,
                   "ring, exponential and others (dunlin-graph --help)")
      ->capture_default_str()
      ->group(kMeasurement);
  neighbors
      ->add_option("--type", options_.collective.type,
                   "of the elements: float16, bfloat16, float32, float64")
      ->capture_default_str()
      ->group(kMeasurement);
  CLI::App* const partial = add(
      app, Bench::kPartial,
      "averages of disjoint groups of neighbouring ranks, all at the same time, beside all-reduces "
      "of the same groups and of all ranks");
  declare_sizes(*partial);
  partial
      ->add_option("--group-size", options_.collective.group_size,
                   "ranks of a group; the last one may have less")
      ->check(CLI::Range(1, 65'536))
      ->capture_default_str()
      ->group(kMeasurement);
  partial
      ->add_option("--type", options_.collective.type,
                   "of the elements: float16, bfloat16, float32, float64")
      ->capture_default_str()
      ->group(kMeasurement);
  partial
      ->add_option("--memory", options_.collective.memory,
                   "registered: allocated for operations; any: the program's, which is copied")
      ->check(CLI::IsMember({"registered", "any"}))
      ->capture_default_str()
      ->group(kMeasurement);
  CLI::App* const groups =
      add(app, Bench::kGroups,
          "asks at the service that forms groups, and steps of training that averages in them, by "
          "a static schedule and smart groups, beside averages of fixed groups");
  declare_sizes(*groups);
  declare_histogram(*groups);
  groups
      ->add_option("--group-size", options_.collective.group_size,
                   "most ranks of a smart group, and those of a fixed one")
      ->check(CLI::Range(2, 65'536))
      ->capture_default_str()
      ->group(kMeasurement);
  CLI::App* const overlap =
      add_collective(app, Bench::kOverlap,
                     "all-reduce while the ranks compute: by how much of the shorter one both "
                     "together are faster than one after the other");
  overlap
      ->add_option("--progress-every", words_.progress_every_us,
                   "microseconds of computation between two calls of progress(); 0: none")
      ->check(CLI::Range(0U, 1'000'000U))
      ->capture_default_str()
      ->group(kMeasurement);
}

void Parser::declare_straggler_ring(CLI::App& app) {
  declare_sizes(app);
  const CLI::Range range(0.0, kLongestStep);
  app.add_option("--step", words_.step_ms, "milliseconds that a step of a rank takes")
      ->check(range)
      ->capture_default_str()
      ->group(kMeasurement);
  app.add_option("--late-by", words_.late_by_ms,
                 "milliseconds, a row for each: how much longer rank 1 takes with the first chunk")
      ->delimiter(',')
      ->check(range)
      ->default_str("0,3,6,12,30")
      ->group(kMeasurement);
  app.add_option("--alpha", options_.ring.alpha, "late is what takes more than this times as usual")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str()
      ->group(kMeasurement);
}

void Parser::declare_tune(CLI::App& app) {
  add(app, Bench::kTune,
      "measures links and algorithms, and writes the best of them, by collective and size, to a "
      "file that jobs of this shape read")
      ->add_option("--file", options_.collective.tuning_file,
                   "where to (default: DUNLIN_TUNING_FILE)")
      ->group(kMeasurement);
}

CLI::App* Parser::add_collective(CLI::App& app, Bench bench, const char* help) {
  CollectiveOptions& own = options_.collective;
  CLI::App* const sub = add(app, bench, help);
  declare_sizes(*sub);
  sub->add_option("--algorithm", own.algorithm,
                  bench == Bench::kOverlap ? "its name; default: chosen by size"
                                           : "its name; all: a row for each that suits; default: "
                                             "chosen by size")
      ->group(kMeasurement);
  sub->add_option("--type", own.type,
                  "of the elements: int8, uint8, int32, int64, float16, "
                  "bfloat16, float32, float64")
      ->capture_default_str()
      ->group(kMeasurement);
  if (bench != Bench::kBroadcast && bench != Bench::kAllGather && bench != Bench::kAllToAll) {
    sub->add_option("--op", own.op, "sum, prod, min, max, avg")
        ->capture_default_str()
        ->group(kMeasurement);
  }
  if (bench != Bench::kBroadcast && bench != Bench::kAllToAll) {
    sub->add_flag("--in-place,!--out-of-place", own.is_in_place,
                  "input and output share memory (default)")
        ->group(kMeasurement);
  }
  sub->add_option("--memory", own.memory,
                  "registered: the communicator's own; any: the program's, which is copied")
      ->check(CLI::IsMember({"registered", "any"}))
      ->capture_default_str()
      ->group(kMeasurement);
  return sub;
}

void Parser::declare_consistency(CLI::App& app) {
  ConsistencyOptions& own = options_.consistency;
  app.add_option("--graph", own.graph, "who sends to whom")
      ->capture_default_str()
      ->group(kMeasurement);
  app.add_option("--count", own.count, "floats in the model (default: RCV1's)")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 32))
      ->capture_default_str()
      ->group(kMeasurement);
  app.add_option("--reduces", own.reduces, "per rank and way of synchronising")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(kMeasurement);
  app.add_option("--sync", own.sync, "notify-ack, bsp, async or all")
      ->check(CLI::IsMember({"notify-ack", "bsp", "async", "all"}))
      ->capture_default_str()
      ->group(kMeasurement);
  declare_depth(app, "--depth", "receive slots per in-neighbour (default: 2)");
  app.add_option("--straggler", words_.straggler,
                 "RANK:FACTOR: that rank takes FACTOR times as long between its reduces")
      ->group(kMeasurement);
  app.add_option("--compute-us", words_.compute_us, "microseconds of work between two reduces")
      ->group(kMeasurement);
}

}  // namespace dunlin::perf
