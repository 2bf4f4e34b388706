// The options of the benchmarks in which all ranks take part together.
#include "runtime/units.h"
#include "tools/dunlin-perf/options/option_parser.h"

namespace dunlin::perf {

void Parser::declare_collectives(CLI::App& app) {
  add_collective(app, Bench::kAllReduce, "all-reduce of all ranks, one blocking call");
  add_collective(app, Bench::kReduceScatter, "reduce-scatter; sizes are those of the input");
  add_collective(app, Bench::kAllGather, "all-gather; sizes are those of the output");
  add_collective(app, Bench::kBroadcast, "broadcast from rank 0, call after call");
  add_collective(app, Bench::kAllToAll, "all-to-all; sizes are those of the input");
  add_collective(app, Bench::kReduce, "reduce to rank 0, call after call");
  declare_neighbors(app);
  declare_groups(app);
  CLI::App* const overlap =
      add_collective(app, Bench::kOverlap,
                     "all-reduce while the ranks compute: how much of the shorter one is hidden "
                     "behind the longer one");
  overlap
      ->add_option("--progress-every", words_.progress_every_us,
                   "computation between two calls of progress(); 0: no such calls")
      ->transform(CLI::Validator(time_option({.high = kLongestCompute, .bare_unit = "us"}), ""))
      ->type_name("TIME")
      ->default_str("10us")
      ->group(kMeasurement);
}

void Parser::declare_neighbors(CLI::App& app) {
  CLI::App* const sub =
      add(app, Bench::kNeighborAllReduce,
          "each rank's weighted average with its neighbors in a graph, one blocking call");
  declare_sizes(*sub);
  sub->add_option("--tensors", options_.collective.tensors,
                  "average this many tensors of each size: start them one after the other, then "
                  "wait for all; a second measurement does the same without fusion")
      ->check(CLI::Range(1U, kMostTensors))
      ->capture_default_str()
      ->group(kMeasurement);
  sub->add_option("--graph", options_.collective.graph,
                  "a node graph: ring, exponential, ... ('dunlin-graph --help' lists them)")
      ->capture_default_str()
      ->group(kMeasurement);
  declare_float_type(*sub);
}

void Parser::declare_groups(CLI::App& app) {
  CLI::App* const partial =
      add(app, Bench::kPartial,
          "averages in disjoint groups of neighboring ranks, all groups at the same time, beside "
          "all-reduces of the same groups and of all ranks");
  declare_sizes(*partial);
  partial
      ->add_option("--group-size", options_.collective.group_size,
                   "ranks of a group; the last group may have fewer")
      ->check(CLI::Range(1, 65'536))
      ->capture_default_str()
      ->group(kMeasurement);
  declare_float_type(*partial);
  CLI::App* const groups =
      add(app, Bench::kGroups,
          "requests to the service that forms groups, and training steps that average in them, "
          "with a static schedule and with smart groups, beside averages in fixed groups");
  declare_sizes(*groups);
  declare_histogram(*groups);
  groups
      ->add_option("--group-size", options_.collective.group_size,
                   "largest number of ranks of a smart group; number of ranks of a fixed one")
      ->check(CLI::Range(2, 65'536))
      ->capture_default_str()
      ->group(kMeasurement);
}

void Parser::declare_float_type(CLI::App& app) {
  app.add_option("--type", options_.collective.type, "type of the elements")
      ->type_name("float16|bfloat16|float32|float64")
      ->capture_default_str()
      ->group(kMeasurement);
}

void Parser::declare_straggler_ring(CLI::App& app) {
  declare_sweep(app);
  const CLI::Validator time(time_option({.high = kLongestStep, .bare_unit = "ms"}), "");
  app.add_option("--step", words_.step_ms, "time of a step of a rank")
      ->transform(time)
      ->type_name("TIME")
      ->default_str("3ms")
      ->group(kMeasurement);
  app.add_option("--late-by", words_.late_by_ms,
                 "additional time of rank 1 for the first chunk; one row for each")
      ->delimiter(',')
      ->transform(time)
      ->type_name("TIME")
      ->default_str("0,3ms,6ms,12ms,30ms")
      ->group(kMeasurement);
  app.add_option("--alpha", options_.ring.alpha,
                 "a step is late when it takes more than this many times the usual time")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str()
      ->group(kMeasurement);
  app.add_option("--moves-every", options_.ring.moves_every,
                 "another rank is late, with another chunk, after this many reduces; 0: never")
      ->capture_default_str()
      ->group(kMeasurement);
}

void Parser::declare_tune(CLI::App& app) {
  add(app, Bench::kTune,
      "measures links and algorithms, and writes the fastest algorithms, by collective and size, "
      "to a file that jobs of the same shape read")
      ->add_option("--file", options_.collective.tuning_file,
                   "the file to write; default: DUNLIN_TUNING_FILE")
      ->group(kMeasurement);
}

CLI::App* Parser::add_collective(CLI::App& app, Bench bench, const char* help) {
  CollectiveOptions& own = options_.collective;
  CLI::App* const sub = add(app, bench, help);
  declare_sizes(*sub);
  sub->add_option("--algorithm", own.algorithm,
                  bench == Bench::kOverlap
                      ? "name of an algorithm; default: chosen by size"
                      : "name of an algorithm, or all: a row for each that suits the job; default: "
                        "chosen by size")
      ->group(kMeasurement);
  sub->add_option("--type", own.type,
                  "type of the elements: int8, uint8, int32, int64, float16, bfloat16, float32, "
                  "float64")
      ->capture_default_str()
      ->group(kMeasurement);
  if (bench != Bench::kBroadcast && bench != Bench::kAllGather && bench != Bench::kAllToAll) {
    sub->add_option("--op", own.op, "the reduction")
        ->type_name("sum|prod|min|max|avg")
        ->capture_default_str()
        ->group(kMeasurement);
  }
  if (bench != Bench::kBroadcast && bench != Bench::kAllToAll) {
    sub->add_flag("--in-place,!--out-of-place", own.is_in_place,
                  "whether input and output share memory (default: in place)")
        ->group(kMeasurement);
  }
  return sub;
}

void Parser::declare_consistency(CLI::App& app) {
  ConsistencyOptions& own = options_.consistency;
  app.add_option("--graph", own.graph,
                 "the node graph, whose edges go from sender to receiver ('dunlin-graph --help')")
      ->capture_default_str()
      ->group(kMeasurement);
  app.add_option("--count", own.count, "floats in the model; default: as many as RCV1 needs")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 32))
      ->capture_default_str()
      ->group(kMeasurement);
  app.add_option("--reduces", own.reduces, "reduces of each rank with each synchronization mode")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(kMeasurement);
  add_choice(app, "--sync", own.sync, {"notify-ack", "bsp", "async", "all"},
             "the synchronization mode")
      ->group(kMeasurement);
  declare_depth(app, "--depth", "receive slots for each in-neighbor; default: 2");
  app.add_option("--straggler", words_.straggler,
                 "this rank takes FACTOR times as long between its reduces")
      ->type_name("RANK:FACTOR")
      ->group(kMeasurement);
  app.add_option("--compute", words_.compute_us, "work between two reduces, such as 5us")
      ->transform(CLI::Validator(time_option({.high = kLongestCompute, .bare_unit = "us"}), ""))
      ->type_name("TIME")
      ->group(kMeasurement);
}

}  // namespace dunlin::perf
