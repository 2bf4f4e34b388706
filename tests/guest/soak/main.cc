// soak: the ranks of a job exchange messages, gets and atomics with one another for a while, and
// check every byte. The fabrics are destroyed and made again in cycles; the resources that a
// process holds between two cycles must not grow. To be started by dunlin-run.
#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdlib>

#include "apps/command_line/command_line.h"
#include "runtime/log.h"
#include "runtime/print.h"
#include "tests/guest/soak/cycle.h"
#include "tests/guest/soak/footprint.h"

namespace dunlin::soak {
namespace {

struct Options {
  double seconds = 10;
  double cycle = 4;
  std::uint64_t least_cycles = 3;
  CycleOptions cycles;
  double timeout = 60;
  Slack slack{2048, 8};
  std::string between;
};

std::optional<Options> parse(int argc, char** argv, int& exit_code) {
  Options options;
  options.cycles = {.number = 0, .seed = 1, .rounds = 4, .round = {}, .timeout = {}};
  CLI::App app("Ranks exchange and check messages, gets and atomics over one fabric after another.",
               "soak");
  app.add_option("--seconds", options.seconds, "how long to go on")
      ->type_name("SECONDS")
      ->capture_default_str();
  app.add_option("--cycle", options.cycle, "seconds of a fabric's life")->capture_default_str();
  app.add_option("--least-cycles", options.least_cycles, "however long they take")
      ->capture_default_str();
  app.add_option("--rounds", options.cycles.rounds, "of registering memory in each cycle")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", options.cycles.seed, "of everything")->capture_default_str();
  app.add_option("--timeout", options.timeout, "seconds to wait for others")->capture_default_str();
  app.add_option("--rss-slack", options.slack.resident_kib, "KiB that a process may grow by")
      ->capture_default_str();
  app.add_option("--between", options.between,
                 "command that has to succeed between cycles, while no rank has a fabric");
  if (const auto code = parse_command_line(app, argc, argv)) {
    exit_code = *code;
    return std::nullopt;
  }
  options.cycles.round = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(options.cycle / static_cast<double>(options.cycles.rounds)));
  options.cycles.timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.timeout));
  return options;
}

// All cycles of one rank. Owner thread only.
class Soak {
 public:
  Soak(Bootstrap& bootstrap, const Config& config, const Options& options)
      : bootstrap_(bootstrap), config_(config), options_(options) {}

  Status run() {
    const TimePoint end = clock_.now() + std::chrono::duration_cast<Duration>(
                                             std::chrono::duration<double>(options_.seconds));
    do {
      Status status = run_cycle();
      if (status.is_ok()) status = compare();
      if (!status.is_ok()) return std::move(status).with_context(fmt::format("cycle {}", cycles_));
      ++cycles_;
    } while (goes_on(clock_.now() < end || cycles_ < options_.least_cycles));
    DUNLIN_TRY(agreement_);
    return report();
  }

 private:
  bool is_first() const { return bootstrap_.rank() == Rank(0); }
  Duration timeout() const { return options_.cycles.timeout; }
  Status meet(std::string_view where) {
    return bootstrap_.barrier(fmt::format("cycle {}: {}", cycles_, where), timeout());
  }

  Status run_cycle() {
    CycleOptions options = options_.cycles;
    options.number = cycles_;
    DUNLIN_ASSIGN(const auto cycle, Cycle::create(bootstrap_, config_, options));
    DUNLIN_TRY(cycle->run());
    totals_ += cycle->totals();
    return Status::ok();
  }

  // The first cycle allocates what a process has only once.
  Status compare() {
    DUNLIN_TRY(meet("torn down"));
    DUNLIN_ASSIGN(const Footprint now, Footprint::take());
    if (cycles_ == 0) first_ = now;
    if (is_first()) DUNLIN_TRY(print(fmt::format("cycle {}: {}\n", cycles_, now.to_string())));
    DUNLIN_TRY(check_growth(first_, now, options_.slack));
    if (is_first()) DUNLIN_TRY(run_between());
    return meet("compared");
  }

  Status run_between() const {
    if (options_.between.empty()) return Status::ok();
    const int code = std::system(options_.between.c_str());
    if (code == 0) return Status::ok();
    return {Code::kInternal, fmt::format("'{}' between cycles ended with {}", options_.between,
                                         WIFEXITED(code) ? WEXITSTATUS(code) : code)};
  }

  // Rank 0 decides.
  bool goes_on(bool is_wanted) {
    const std::string key = fmt::format("after cycle {}", cycles_);
    if (is_first()) {
      agreement_ = bootstrap_.publish(key, ByteWriter().number(int{is_wanted}).take());
      return agreement_.is_ok() && is_wanted;
    }
    const auto decided = bootstrap_.lookup(key, timeout());
    agreement_ = decided.status();
    return decided.is_ok() && ByteReader(*decided).number<int>() != 0;
  }

  Status report() {
    const auto key = [](int rank) { return fmt::format("totals/{}", rank); };
    DUNLIN_TRY(bootstrap_.publish(key(bootstrap_.rank().value()), totals_.encode()));
    Totals all;
    for (int rank = 0; rank < bootstrap_.size(); ++rank) {
      DUNLIN_ASSIGN(const Bytes found, bootstrap_.lookup(key(rank), timeout()));
      all += Totals::decode(found);
    }
    if (is_first()) {
      DUNLIN_TRY(print(fmt::format(
          "{} messages of {} bytes, {} gets of {} bytes, {} atomics, {} cycles, 0 errors\n",
          all.messages, all.message_bytes, all.gets, all.get_bytes, all.atomics, cycles_)));
    }
    return bootstrap_.barrier("reported", timeout());
  }

  Bootstrap& bootstrap_;
  const Config& config_;
  const Options& options_;
  const SteadyClock clock_;
  std::uint64_t cycles_ = 0;
  Totals totals_;
  Footprint first_;
  Status agreement_;
};

int fail(const Status& status) {
  print_error(fmt::format("soak: {}\n", status.to_string()));
  return 1;
}

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = parse(argc, argv, exit_code);
  if (!options) return exit_code;
  const Environment environment = Environment::of_process();
  const auto config = Config::parse(environment);
  if (!config) return fail(config.status());
  const auto bootstrap = Bootstrap::join(*config, environment);
  if (!bootstrap) return fail(bootstrap.status());
  configure_log(config->log_level, (*bootstrap)->rank());
  const Status status = Soak(**bootstrap, *config, *options).run();
  return status.is_ok() ? 0 : fail(status);
}

}  // namespace
}  // namespace dunlin::soak

int main(int argc, char** argv) {
  return dunlin::soak::main(argc, argv);
}
