#include "tools/dunlin-perf/options/options.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/units.h"
#include "tools/dunlin-perf/benchmarks/collective.h"
#include "tools/dunlin-perf/benchmarks/plan.h"
#include "tools/dunlin-perf/options/endpoints.h"
#include "tools/dunlin-perf/options/option_parser.h"

namespace dunlin::perf {
namespace {

constexpr const char* kFooter =
    "Under a launcher: dunlin-run -n 2 dunlin-perf put-notify --size 8\n"
    "Two hosts without a launcher: run 'dunlin-perf --listen' on one and 'dunlin-perf put "
    "--connect HOST' on the other, which measures and prints. The listener takes the options from "
    "there; those that its own command line names must agree. Where others can reach the port, set "
    "the same DUNLIN_JOB_SECRET on both.\n"
    "Ranks form pairs (0-1, 2-3, ...) that measure at the same time; all ranks take part in the "
    "collectives and in consistency. Over shm, the bare limit of the host stands beside each "
    "figure, measured in turns with it: the cache-line ping-pong of the same two processes, or "
    "memcpy of the same size. Over other transports the limit is '-'.\n"
    "Exit codes: 0 done, 1 failed (or wrong data), 2 wrong usage.";

std::vector<std::size_t> sizes_of(const Words& words) {
  if (!words.sizes.empty()) return words.sizes;
  if (words.smallest > words.largest) {
    throw CLI::ValidationError("--min-size", "is more than --max-size");
  }
  return sweep(words.smallest, words.largest);
}

// Whether the command line names sizes.
bool is_swept(const CLI::App& chosen) {
  return chosen.count("--size") + chosen.count("--min-size") + chosen.count("--max-size") > 0;
}

}  // namespace

void Parser::declare(CLI::App& app) {
  app.footer(kFooter);
  app.require_subcommand(0, 1);
  declare_own(app);
  declare_puts(app);
  declare_accesses(app);
  declare_meetings(app);
  declare_collectives(app);
  declare_straggler_ring(*add(app, Bench::kStragglerRing,
                              "the straggler-aware ring beside the plain one, with one late step; "
                              "sizes are those of a chunk (default: 8K)"));
  declare_tune(app);
  declare_consistency(*add(app, Bench::kConsistency,
                           "share of reduces by number of consistent inputs (ASAP, figure 8)"));
}

void Parser::declare_puts(CLI::App& app) {
  const char* const outstanding =
      "most puts outstanding in the stream; default: 128, fewer where that exceeds 8 MiB";
  CLI::App* const put =
      add(app, Bench::kPut, "put + flush(remote), and a stream of outstanding puts: bandwidth");
  declare_sizes(*put);
  declare_histogram(*put);
  declare_depth(*put, "--queue-depth,--depth", outstanding);
  put->add_flag("--bidirectional", options_.is_bidirectional,
                "stream from both sides at the same time; rates are those of both directions")
      ->group(kMeasurement);
  CLI::App* const latency =
      add(app, Bench::kPutLatency,
          "half the round trip of plain puts, where each side polls the last byte of its memory: "
          "for comparison with ib_write_lat and ucp_put_lat. Programs must not rely on that: "
          "nothing promises that the last byte lands last");
  declare_sizes(*latency);
  declare_histogram(*latency);
  CLI::App* const put_notify =
      add(app, Bench::kPutNotify,
          "half the round trip of a put with notification, data read; and the rate of a stream");
  declare_sizes(*put_notify);
  declare_histogram(*put_notify);
  declare_depth(*put_notify, "--queue-depth,--depth", outstanding);
  CLI::App* const notify = add(
      app, Bench::kNotify, "half the round trip of a bare notification, and the rate of a stream");
  declare_histogram(*notify);
  declare_depth(*notify, "--queue-depth,--depth", "most notifications outstanding; default: 128");
}

void Parser::declare_accesses(CLI::App& app) {
  CLI::App* const get =
      add(app, Bench::kGet, "get until the bytes are there, and a stream of outstanding gets");
  declare_sizes(*get);
  declare_histogram(*get);
  declare_depth(
      *get, "--queue-depth,--depth",
      "most gets outstanding in the stream; default: 128, fewer where that exceeds 8 MiB");
  CLI::App* const atomic =
      add(app, Bench::kAtomic,
          "64-bit fetch-and-add until the former value is there, and a stream of them");
  declare_checks(*atomic);
  declare_histogram(*atomic);
  declare_depth(*atomic, "--queue-depth,--depth", "most atomics outstanding; default: 128");
  CLI::App* const window =
      add(app, Bench::kWindow,
          "accumulate in a neighbor's window until it is in the neighbor's buffer; and the rate of "
          "accumulates, which may be merged while the neighbor is busy");
  declare_sizes(*window);
  declare_histogram(*window);
  window->add_flag("--put", options_.is_put, "put in place of accumulating")->group(kMeasurement);
}

void Parser::declare_meetings(CLI::App& app) {
  CLI::App* const channel =
      add(app, Bench::kChannel,
          "half the round trip and the rate of messages of a channel, ACKs included");
  declare_sizes(*channel);
  declare_histogram(*channel);
  declare_depth(*channel, "--depth", "slots; default: 16");
  declare_histogram(*add(app, Bench::kBarrier, "barrier of all ranks"));
  CLI::App* const mutex =
      add(app, Bench::kMutex, "lock and unlock of a mutex for which all ranks compete");
  declare_checks(*mutex);
  declare_histogram(*mutex);
}

CLI::App* Parser::add(CLI::App& app, Bench bench, const char* help) {
  CLI::App* const sub = app.add_subcommand(to_string(bench), help);
  sub->callback([this, bench] { options_.bench = bench; });
  declare_own(*sub);
  declare_connecting(*sub);
  if (bench != Bench::kConsistency) declare_measuring(*sub, bench);
  declare_memory(*sub, bench);
  return sub;
}

void Parser::declare_own(CLI::App& app) {
  app.add_option("--listen", words_.listen,
                 "wait here for the side that connects, and measure with it; default: port 18520 "
                 "of all interfaces")
      ->type_name("[ADDR:]PORT")
      ->expected(0, 1)
      ->group(kThisSide);
  app.add_flag("--keep", options_.keeps_listening, "listen again after every client, until Ctrl-C")
      ->group(kThisSide);
  app.add_option("--transport", options_.transport,
                 "shm, verbs, tcp, ucx or a list of them, best first; default: DUNLIN_TRANSPORTS")
      ->group(kThisSide);
  add_choice(app, "--poll", options_.poll,
             {{"auto", Poll::kAuto}, {"spin", Poll::kSpin}, {"wait", Poll::kWait}},
             "spin: poll without pause; wait: wait as the library does (spin, yield, sleep); "
             "auto: spin when every rank has a core of its own that nothing else wants")
      ->group(kThisSide);
  app.add_flag("!--no-bind", options_.binds, "let the kernel choose the cores of the ranks")
      ->group(kThisSide);
}

void Parser::declare_connecting(CLI::App& app) {
  app.add_option("--connect", words_.connect,
                 "measure with 'dunlin-perf --listen' there; default: port 18520")
      ->type_name("HOST[:PORT]")
      ->group(kThisSide);
  add_json_options(app, options_.json, kThisSide);
}

void Parser::declare_measuring(CLI::App& app, Bench bench) {
  app.add_option("--qp-count", options_.queue_pairs,
                 "queue pairs per port over which the verbs transport stripes large puts; "
                 "default: DUNLIN_VERBS_QP_COUNT")
      ->check(CLI::Range(std::uint32_t{1}, kMostQueuePairs))
      ->group(kMeasurement);
  if (bench == Bench::kTune) return;  // the tuner repeats as often as it takes
  app.add_option("--warmup", options_.warmup,
                 bench == Bench::kStragglerRing
                     ? "untimed repetitions before the timed ones; default: 20"
                     : "untimed repetitions before the timed ones; default: a tenth of them, and "
                       "a hundredth with --duration")
      ->check(CLI::Range(std::uint64_t{1}, kMostIterations))
      ->group(kMeasurement);
  CLI::Option* const iterations =
      app.add_option("--iterations", options_.iterations,
                     bench == Bench::kStragglerRing ? "timed repetitions; default: 40"
                                                    : "timed repetitions; default: chosen by size");
  iterations->check(CLI::Range(std::uint64_t{1}, kMostIterations))->group(kMeasurement);
  if (bench == Bench::kStragglerRing) return;
  app.add_option("--duration", words_.seconds,
                 "measure this long for each size, instead of a number of repetitions")
      ->transform(CLI::Validator(
          time_option(
              {.low = std::chrono::milliseconds(1), .high = kLongestDuration, .bare_unit = "s"}),
          ""))
      ->type_name("TIME")
      ->excludes(iterations)
      ->group(kMeasurement);
}

// Benchmarks of host memory alone have the option, too, but not in their help: they say why they
// refuse other memory.
void Parser::declare_memory(CLI::App& app, Bench bench) {
  const bool takes_any = takes_any_memory(bench);
  const bool takes_gpus = takes_gpu_memory(bench);
  std::string names = takes_any ? "registered|any" : "host";
  std::string help = takes_any ? "registered: memory that the communicator allocated; any: the "
                                 "program's own memory, which is copied"
                               : "host: memory that Dunlin allocated";
  if (takes_wrapped_memory(bench)) {
    names += "|wrapped";
    help += "; wrapped: the program's own memory, which peers on this host access by system calls";
  }
  if (takes_gpus) {
    names += "|cuda[:N]";
    help +=
        "; cuda: memory of GPU N, by default of the GPU that the place of the rank on its host "
        "gives";
  }
  app.add_option("--memory", words_.memory, help)
      ->type_name(names)
      ->default_str(takes_any ? "registered" : "host")
      ->group(takes_any || takes_gpus ? kMeasurement : "");
}

void Parser::declare_histogram(CLI::App& app) {
  app.add_flag("--report-histogram", options_.has_histogram,
               "print percentiles and a histogram of the latencies; every repetition is then timed "
               "by itself, which adds the time of reading the clock to each")
      ->group(kMeasurement);
}

void Parser::declare_sizes(CLI::App& app) {
  declare_sweep(app);
  declare_checks(app);
}

void Parser::declare_sweep(CLI::App& app) {
  const CLI::Validator size(size_option({.high = kLargestSize}), "");
  app.add_option("--size", words_.sizes, "bytes, such as 8,64,1K,1M")
      ->transform(size)
      ->type_name("SIZE")
      ->delimiter(',')
      ->group(kMeasurement);
  app.add_option("--min-size", words_.smallest, "first size of the sweep (by powers of 4)")
      ->transform(size)
      ->type_name("SIZE")
      ->default_str("8")
      ->group(kMeasurement);
  app.add_option("--max-size", words_.largest, "last size of the sweep")
      ->transform(size)
      ->type_name("SIZE")
      ->default_str("4M")
      ->group(kMeasurement);
}

void Parser::declare_checks(CLI::App& app) {
  app.add_flag("--check,!--no-check", options_.checks,
               "whether to verify the data (default: verify)")
      ->group(kMeasurement);
}

void Parser::declare_depth(CLI::App& app, const char* names, const char* help) {
  app.add_option(names, options_.depth, help)
      ->check(CLI::Range(std::uint32_t{1}, kDeepest))
      ->group(kMeasurement);
}

void Parser::finish(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  read_start(app, chosen.empty() ? nullptr : chosen.front());
  if (!words_.straggler.empty()) {
    options_.consistency.straggler = parse_straggler(words_.straggler);
    if (!options_.consistency.straggler) {
      throw CLI::ValidationError("--straggler", "'" + words_.straggler +
                                                    "' is not RANK:FACTOR with a factor of 1 or "
                                                    "more");
    }
  }
  auto memory = parse_memory(words_.memory);
  if (!memory) throw CLI::ValidationError("--memory", std::string(memory.status().message()));
  options_.memory = *memory;
  options_.sizes = sizes_of(words_);
  if (options_.bench == Bench::kNotify || options_.bench == Bench::kBarrier ||
      options_.bench == Bench::kMutex) {
    options_.sizes = {0};
  }
  if (options_.bench == Bench::kStragglerRing && !is_swept(*chosen.front()))
    options_.sizes = {std::size_t{8} << 10};
  if (options_.bench == Bench::kAtomic) options_.sizes = {sizeof(std::uint64_t)};
  options_.duration =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(words_.seconds));
  const auto microseconds = [](double value) { return Duration(std::llround(value * 1e3)); };
  const auto milliseconds = [](double value) { return Duration(std::llround(value * 1e6)); };
  options_.consistency.compute = microseconds(words_.compute_us);
  options_.collective.progress_every = microseconds(words_.progress_every_us);
  options_.ring.step = milliseconds(words_.step_ms);
  for (const double late_by : words_.late_by_ms)
    options_.ring.extras.push_back(milliseconds(late_by));
  if (!chosen.empty()) note_named(*chosen.front());
  if (const std::string problem = problem_of(options_); !problem.empty()) {
    throw CLI::ValidationError(to_string(options_.bench), problem);
  }
  if (const Status status = check_collective(options_); !status.is_ok()) {
    throw CLI::ValidationError(to_string(options_.bench), std::string(status.message()));
  }
}

void Parser::read_start(const CLI::App& app, const CLI::App* chosen) {
  const bool listens =
      app.count("--listen") > 0 || (chosen != nullptr && chosen->count("--listen") > 0);
  const bool connects = chosen != nullptr && chosen->count("--connect") > 0;
  if (chosen == nullptr && !listens) {
    throw CLI::RequiredError("A benchmark");
  }
  if (listens && connects) throw CLI::ValidationError("--listen", "excludes --connect");
  if (listens && !options_.json.empty()) {
    throw CLI::ValidationError("--json-out",
                               "belongs to the side that connects, which has the figures");
  }
  if (options_.keeps_listening && !listens) throw CLI::ValidationError("--keep", "needs --listen");
  if (!listens && !connects) return;
  options_.start = listens ? Start::kListen : Start::kConnect;
  auto endpoint = listens ? parse_listen(words_.listen) : parse_connect(words_.connect);
  if (!endpoint) {
    throw CLI::ValidationError(listens ? "--listen" : "--connect",
                               std::string(endpoint.status().message()));
  }
  options_.endpoint = std::move(endpoint).value();
}

void Parser::note_named(const CLI::App& chosen) {
  options_.named.insert("benchmark");
  for (const CLI::Option* option : chosen.get_options()) {
    if (option->count() == 0 || option->get_group() != kMeasurement) continue;
    const std::string& name = option->get_lnames().front();
    const bool is_size = name == "min-size" || name == "max-size";
    options_.named.insert(is_size ? "size" : name == "queue-depth" ? "depth" : name);
  }
}

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  CLI::App app("Measures what Dunlin moves between processes, beside the bare limit of the host.",
               "dunlin-perf");
  Parser parser(options);
  parser.declare(app);
  if (const auto code = parse_command_line(app, argc, argv, [&] { parser.finish(app); })) {
    exit_code = *code;
    return std::nullopt;
  }
  return options;
}

}  // namespace dunlin::perf
