#include "tools/dunlin-sim/network/scenario.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/command_line/command_line.h"

namespace dunlin::simulate {
namespace {

using transport::sim::Route;

constexpr const char* kRun = "The run";
constexpr const char* kNetwork = "The network";
constexpr const char* kTrouble = "Trouble";

// This many take hours of real time.
constexpr std::uint64_t kMostEvents = 10'000'000'000;
// A short queue keeps the lanes of a hostile network full most of the time.
constexpr std::size_t kHostileDepth = 8;

// Adds an option whose values `parse` reads and `take` stores. `value_name` stands for a value in
// the help text.
template <typename Parse, typename Take>
CLI::Option* add(CLI::App& app, const char* name, const char* value_name, const std::string& help,
                 Parse parse, Take take) {
  return app
      .add_option_function<std::vector<std::string>>(
          name,
          [name, parse, take](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              auto value = parse(text);
              if (!value) {
                throw CLI::ValidationError(name, std::string(value.status().message()));
              }
              take(*value);
            }
          },
          help)
      ->expected(1)
      ->type_name(value_name);
}

template <typename Value>
auto into(Value& value) {
  return [&value](const Value& read) { value = read; };
}

}  // namespace

void ScenarioOptions::declare(CLI::App& app) {
  declare_run(app);
  declare_network(app);
  declare_trouble(app);
}

void ScenarioOptions::declare_run(CLI::App& app) {
  scenario_.events = kMostEvents;
  app.add_option("-n,--ranks", scenario_.network.ranks, "ranks of the job")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(kRun);
  app.add_option("--steps,--iterations", scenario_.steps, "steps of each rank")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32))
      ->capture_default_str()
      ->group(kRun);
  add(app, "--compute", "TIME", "work before each step", parse_duration, into(scenario_.compute))
      ->group(kRun);
  app.add_option("--seed", scenario_.network.seed,
                 "seed of all randomness; the same seed gives the same run")
      ->capture_default_str()
      ->group(kRun);
  app.add_option("--seeds", scenario_.seeds,
                 "number of runs, with the seeds from --seed on; the first failure ends them")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32))
      ->group(kRun);
  app.add_flag("!--no-check", scenario_.checks, "do not verify received data")->group(kRun);
  app.add_option("--most-events", scenario_.events, "a run with more events than this fails")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(kRun);
  add_json_options(app, scenario_.json, kRun);
}

void ScenarioOptions::declare_network(CLI::App& app) {
  auto& network = scenario_.network;
  const auto link = [&](const char* latency, const char* bandwidth, const char* where,
                        transport::sim::LinkClass& to) {
    add(app, latency, "TIME", fmt::format("latency {}", where), parse_duration, into(to.latency))
        ->default_str(format_duration(to.latency))
        ->group(kNetwork);
    add(app, bandwidth, "RATE", fmt::format("bandwidth {}: 100Gb, 12.5GB, unlimited", where),
        parse_bandwidth, into(to.bandwidth))
        ->default_str(format_bytes(to.bandwidth) + "/s")
        ->group(kNetwork);
  };
  link("--latency", "--bandwidth", "between hosts", network.rack);
  link("--intra-latency", "--intra-bandwidth", "within a host", network.host);
  link("--spine-latency", "--spine-bandwidth",
       "between racks (default: as between hosts, if that is given)", network.spine);
  app.add_option("--ranks-per-host", network.ranks_per_host, "ranks that share a host")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(kNetwork);
  app.add_option("--hosts-per-rack", network.hosts_per_rack, "hosts of a rack; 0: one rack for all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(kNetwork);
  app.add_flag("--shared-nic", network.shares_nic,
               "one NIC for a host instead of one for each rank")
      ->group(kNetwork);
  app.add_option("--oversubscription", network.oversubscription,
                 "bandwidth of a rack's NICs divided by that of its uplink; 0: the uplink never "
                 "limits")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(kNetwork);
  add(app, "--overhead", "TIME", "time that a message occupies the NIC in addition to its bytes",
      parse_duration, into(network.overhead))
      ->group(kNetwork);
  add(app, "--jitter", "KIND:TIME",
      "added to latencies: uniform:TIME (from 0 to TIME), exponential:TIME (mean)", parse_jitter,
      into(network.jitter))
      ->group(kNetwork);
  app.add_option("--queue-depth", network.queue_depth, "operations in progress on a lane")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20))
      ->capture_default_str()
      ->group(kNetwork);
}

void ScenarioOptions::declare_trouble(CLI::App& app) {
  auto& network = scenario_.network;
  add(app, "--straggler", "RANK:FACTOR",
      "--compute of this rank takes FACTOR times as long; can be repeated", parse_straggler,
      [&network](const auto& read) { network.stragglers.push_back(read); })
      ->expected(1, 1 << 20)
      ->group(kTrouble);
  add(app, "--kill", "RANK@TIME", "this rank dies then; can be repeated", parse_kill,
      [this](const Kill& read) { scenario_.kills.push_back(read); })
      ->expected(1, 1 << 20)
      ->group(kTrouble);
  add(app, "--loss-notice", "TIME", "time from the death of a rank until the others know of it",
      parse_duration, into(network.loss_notice))
      ->group(kTrouble);
  app.add_flag("--hostile", is_hostile_,
               "everything that the contract of a lane allows: puts land torn, late and in any "
               "order, posts are refused, queues are short (8)")
      ->group(kTrouble);
}

void ScenarioOptions::finish(const CLI::App& app) {
  auto& network = scenario_.network;
  if (app.count("--spine-latency") == 0 && app.count("--latency") > 0)
    network.spine.latency = network.rack.latency;
  if (app.count("--spine-bandwidth") == 0 && app.count("--bandwidth") > 0)
    network.spine.bandwidth = network.rack.bandwidth;
  if (is_hostile_) {
    network.hostility.emplace();
    if (app.count("--queue-depth") == 0) network.queue_depth = kHostileDepth;
  }
  for (const Kill& kill : scenario_.kills) {
    if (kill.rank > scenario_.last_rank()) {
      throw CLI::ValidationError(
          "--kill", fmt::format("rank {} in a job of {} ranks", kill.rank.value(), network.ranks));
    }
  }
  if (const Status status = network.check(); !status.is_ok()) {
    throw CLI::ValidationError(std::string(status.message()));
  }
}

Result<std::unique_ptr<transport::sim::Network>> Scenario::make_network() const {
  DUNLIN_ASSIGN(auto made, transport::sim::Network::create(network));
  for (const Kill& kill : kills) made->lose_at(kill.rank, TimePoint() + kill.at);
  return made;
}

nlohmann::ordered_json to_json(const Scenario& scenario) {
  const auto& network = scenario.network;
  const auto us = [](Duration duration) { return static_cast<double>(duration.count()) / 1e3; };
  nlohmann::ordered_json links;
  for (const Route route : {Route::kHost, Route::kRack, Route::kSpine}) {
    links[to_string(route)] = {{"latency_us", us(network.link(route).latency)},
                               {"gbytes_per_s", network.link(route).bandwidth / 1e9}};
  }
  nlohmann::ordered_json json{{"ranks", network.ranks},
                              {"seed", network.seed},
                              {"steps", scenario.steps},
                              {"compute_us", us(scenario.compute)},
                              {"ranks_per_host", network.ranks_per_host},
                              {"hosts_per_rack", network.hosts_per_rack},
                              {"links", links},
                              {"shared_nic", network.shares_nic},
                              {"oversubscription", network.oversubscription},
                              {"overhead_us", us(network.overhead)},
                              {"jitter_us", us(network.jitter.scale)},
                              {"queue_depth", network.queue_depth},
                              {"hostile", network.hostility.has_value()}};
  json["stragglers"] = nlohmann::ordered_json::array();
  for (const auto& straggler : network.stragglers) {
    json["stragglers"].push_back({{"rank", straggler.rank.value()}, {"factor", straggler.factor}});
  }
  json["kills"] = nlohmann::ordered_json::array();
  for (const Kill& kill : scenario.kills) {
    json["kills"].push_back({{"rank", kill.rank.value()}, {"at_us", us(kill.at)}});
  }
  return json;
}

std::string describe(const Scenario& scenario) {
  const auto& network = scenario.network;
  const auto link = [&](Route route) {
    const auto& made = network.link(route);
    return fmt::format("{} {} + {}", to_string(route), format_duration(made.latency),
                       made.bandwidth == 0 ? "unlimited" : format_bytes(made.bandwidth) + "/s");
  };
  std::string text = fmt::format("{} ranks", network.ranks);
  if (network.ranks_per_host > 1) {
    text += fmt::format(", {} a host ({})", network.ranks_per_host, link(Route::kHost));
  }
  text += ", " + link(Route::kRack);
  if (network.rack_of(scenario.last_rank()) > 0) {
    text += fmt::format(", {} hosts a rack ({})", network.hosts_per_rack, link(Route::kSpine));
  }
  if (network.hostility) text += ", hostile";
  return text + fmt::format(", seed {}", network.seed);
}

}  // namespace dunlin::simulate
