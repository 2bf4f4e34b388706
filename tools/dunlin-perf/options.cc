#include "tools/dunlin-perf/options.h"

#include <CLI/CLI.hpp>
#include <map>

namespace dunlin::perf {
namespace {

constexpr const char* kFooter =
    "Start it on two ranks or more, for example: dunlin-run -n 2 dunlin-perf put-notify --size 8\n"
    "Ranks form pairs (0-1, 2-3, ...) that measure at the same time; barrier and consistency take\n"
    "all of them. Beside every figure stands the bare limit of the machine, measured in turns "
    "with\n"
    "it: the cache-line ping-pong of the same two processes, or memcpy of the same size.\n"
    "Exit codes: 0 done, 1 failed (or wrong data), 2 wrong usage.";

// Beyond any machine's memory; the sum of a few such sizes is still a number.
constexpr std::size_t kLargest = std::size_t{1} << 48;

struct Sweep {
  std::size_t smallest = 8;
  std::size_t largest = 4 << 20;
};

void declare_common(CLI::App& app, Options& options) {
  static const std::map<std::string, Poll> polls{
      {"auto", Poll::kAuto}, {"spin", Poll::kSpin}, {"wait", Poll::kWait}};
  app.add_option("--transport", options.transport,
                 "shm, ucx or a list, best first; default: DUNLIN_TRANSPORTS");
  app.add_option(
         "--poll", options.poll,
         "spin: poll without pause; wait: the library's waiting (spin, yield, sleep); auto: "
         "spin where every rank has a core")
      ->transform(CLI::CheckedTransformer(polls))
      ->default_str("auto");
  app.add_flag("!--no-bind", options.binds, "leave it to the kernel where the ranks run");
  app.add_option("--json", options.json,
                 "JSON lines into this file; -: to standard output, instead of the table");
}

void declare_measuring(CLI::App& app, Options& options) {
  app.add_option("--iterations", options.iterations, "timed repetitions; default: by size")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  app.add_option("--warmup", options.warmup, "untimed ones before; default: a tenth");
}

void declare_sizes(CLI::App& app, Options& options, Sweep& sweep) {
  const CLI::Range range(std::size_t{0}, kLargest);
  app.add_option("--size", options.sizes, "bytes, such as 8,64,1K,1M")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false))
      ->check(range);
  app.add_option("--min-size", sweep.smallest, "first size of the sweep (by powers of 4)")
      ->transform(CLI::AsSizeValue(false))
      ->check(range)
      ->capture_default_str();
  app.add_option("--max-size", sweep.largest, "last size of the sweep")
      ->transform(CLI::AsSizeValue(false))
      ->check(range)
      ->capture_default_str();
  app.add_flag("--check,!--no-check", options.checks,
               "verify the data in a pass before the timed one (default)");
}

void declare_depth(CLI::App& app, Options& options, const char* help) {
  app.add_option("--depth", options.depth, help)->check(CLI::Range(1, 4096));
}

void declare_consistency(CLI::App& app, Options& options, std::string& straggler,
                         std::uint64_t& compute_us) {
  ConsistencyOptions& own = options.consistency;
  app.add_option("--graph", own.graph, "who sends to whom")->capture_default_str();
  app.add_option("--count", own.count, "floats in the model (default: RCV1's)")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 32))
      ->capture_default_str();
  app.add_option("--reduces", own.reduces, "per rank and way of synchronising")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--sync", own.sync, "notify-ack, bsp, async or all")
      ->check(CLI::IsMember({"notify-ack", "bsp", "async", "all"}))
      ->capture_default_str();
  declare_depth(app, options, "receive slots per in-neighbour (default: 2)");
  app.add_option("--straggler", straggler,
                 "RANK:FACTOR: that rank takes FACTOR times as long between its reduces");
  app.add_option("--compute-us", compute_us, "microseconds of work between two reduces");
}

Straggler parse_straggler(const std::string& text) {
  Straggler straggler;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%d:%lf%c", &straggler.rank, &straggler.factor, &rest) != 2 ||
      straggler.rank < 0 || !(straggler.factor >= 1)) {
    throw CLI::ValidationError("--straggler",
                               "'" + text + "' is not RANK:FACTOR with a factor of 1 or more");
  }
  return straggler;
}

std::vector<std::size_t> sizes_of(const Sweep& sweep) {
  if (sweep.smallest > sweep.largest) {
    throw CLI::ValidationError("--min-size", "is more than --max-size");
  }
  std::vector<std::size_t> sizes;
  for (std::size_t size = sweep.smallest; size <= sweep.largest; size *= 4) {
    sizes.push_back(size);
    if (size == 0) size = 2;  // 0, 8, 32, ...
  }
  return sizes;
}

}  // namespace

const char* to_string(Bench bench) {
  switch (bench) {
    case Bench::kPut:
      return "put";
    case Bench::kPutNotify:
      return "put-notify";
    case Bench::kNotify:
      return "notify";
    case Bench::kChannel:
      return "channel";
    case Bench::kBarrier:
      return "barrier";
    case Bench::kConsistency:
      return "consistency";
  }
  return "unknown";
}

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  Sweep sweep;
  std::string straggler;
  std::uint64_t compute_us = 0;
  CLI::App app("Measures what Dunlin moves between processes, beside the machine's bare limit.",
               "dunlin-perf");
  app.footer(kFooter);
  app.require_subcommand(1);
  const auto add = [&](Bench bench, const char* help) {
    CLI::App* const sub = app.add_subcommand(to_string(bench), help);
    sub->callback([&options, bench] { options.bench = bench; });
    declare_common(*sub, options);
    if (bench != Bench::kConsistency) declare_measuring(*sub, options);
    return sub;
  };
  CLI::App* const put = add(Bench::kPut, "put + flush(remote), and a window of outstanding puts");
  declare_sizes(*put, options, sweep);
  declare_depth(*put, options, "puts in the window (default: 16, less where that is over 8 MiB)");
  CLI::App* const put_notify =
      add(Bench::kPutNotify, "half the round trip of a put with notification, data read");
  declare_sizes(*put_notify, options, sweep);
  add(Bench::kNotify, "half the round trip of a bare notification");
  CLI::App* const channel = add(
      Bench::kChannel, "half the round trip and the rate of messages of a channel, ACKs included");
  declare_sizes(*channel, options, sweep);
  declare_depth(*channel, options, "slots (default: 16)");
  add(Bench::kBarrier, "barrier of all ranks");
  CLI::App* const consistency =
      add(Bench::kConsistency, "share of reduces by number of consistent inputs (ASAP, figure 8)");
  declare_consistency(*consistency, options, straggler, compute_us);
  try {
    app.parse(argc, argv);
    if (!straggler.empty()) options.consistency.straggler = parse_straggler(straggler);
    if (options.sizes.empty()) options.sizes = sizes_of(sweep);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : kUsage;
    return std::nullopt;
  }
  if (options.bench == Bench::kNotify || options.bench == Bench::kBarrier) options.sizes = {0};
  options.consistency.compute = std::chrono::microseconds(compute_us);
  return options;
}

}  // namespace dunlin::perf
