#include "tools/dunlin-sim/scenario.h"

#include <fmt/format.h>

namespace dunlin::simulate {
namespace {

using transport::sim::Route;

constexpr const char* kRun = "The run";
constexpr const char* kNetwork = "The network";
constexpr const char* kTrouble = "Trouble";

// Enough for hours of real time.
constexpr std::uint64_t kMostEvents = 10'000'000'000;
// On a hostile network lanes are nearly always full.
constexpr std::size_t kHostileDepth = 8;

// An option whose value `parse` reads, and `take` stores.
template <typename Parse, typename Take>
CLI::Option* add(CLI::App& app, const char* name, const char* help, Parse parse, Take take) {
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
      ->type_name("");
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
  app.add_option("--steps,--iterations", scenario_.steps, "of each rank")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32))
      ->capture_default_str()
      ->group(kRun);
  add(app, "--compute", "TIME of work before each step", parse_duration, into(scenario_.compute))
      ->group(kRun);
  app.add_option("--seed", scenario_.network.seed, "of all randomness; same seed, same run")
      ->capture_default_str()
      ->group(kRun);
  app.add_option("--seeds", scenario_.seeds, "so many runs, from --seed on; stops at a failure")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32))
      ->group(kRun);
  app.add_flag("!--no-check", scenario_.checks, "do not verify what was received")->group(kRun);
  app.add_option("--most-events", scenario_.events, "a run that takes more is called a failure")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(kRun);
  app.add_option("--json", scenario_.json,
                 "JSON lines into this file; -: to standard output, instead of the text")
      ->group(kRun);
}

void ScenarioOptions::declare_network(CLI::App& app) {
  auto& network = scenario_.network;
  const auto link = [&](const char* latency, const char* bandwidth, const char* where,
                        transport::sim::LinkClass& to) {
    add(app, latency, fmt::format("TIME, {}", where).c_str(), parse_duration, into(to.latency))
        ->default_str(format_duration(to.latency))
        ->group(kNetwork);
    add(app, bandwidth, fmt::format("RATE (100Gb, 12.5GB, unlimited), {}", where).c_str(),
        parse_bandwidth, into(to.bandwidth))
        ->default_str(format_bytes(to.bandwidth) + "/s")
        ->group(kNetwork);
  };
  link("--latency", "--bandwidth", "between hosts", network.rack);
  link("--intra-latency", "--intra-bandwidth", "within a host", network.host);
  link("--spine-latency", "--spine-bandwidth",
       "between racks (default: as between hosts, where that is given)", network.spine);
  app.add_option("--ranks-per-host", network.ranks_per_host, "ranks that share a host")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(kNetwork);
  app.add_option("--hosts-per-rack", network.hosts_per_rack, "0: one rack holds all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(kNetwork);
  app.add_flag("--shared-nic", network.shares_nic, "one NIC for a host, not for each rank")
      ->group(kNetwork);
  app.add_option("--oversubscription", network.oversubscription,
                 "how many times less than its NICs a rack's uplink carries; 0: it never limits")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(kNetwork);
  add(app, "--overhead", "TIME for which a message keeps the NIC busy beside its bytes",
      parse_duration, into(network.overhead))
      ->group(kNetwork);
  add(app, "--jitter", "added to latencies: uniform:TIME (from 0), exponential:TIME (mean)",
      parse_jitter, into(network.jitter))
      ->group(kNetwork);
  app.add_option("--queue-depth", network.queue_depth, "operations in flight on a lane")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20))
      ->capture_default_str()
      ->group(kNetwork);
}

void ScenarioOptions::declare_trouble(CLI::App& app) {
  auto& network = scenario_.network;
  add(app, "--straggler", "RANK:FACTOR: its --compute takes that many times longer; repeatable",
      parse_straggler, [&network](const auto& read) { network.stragglers.push_back(read); })
      ->expected(1, 1 << 20)
      ->group(kTrouble);
  add(app, "--kill", "RANK@TIME: it ends then; repeatable", parse_kill,
      [this](const Kill& read) { scenario_.kills.push_back(read); })
      ->expected(1, 1 << 20)
      ->group(kTrouble);
  add(app, "--loss-notice", "TIME from a rank's end until the others know", parse_duration,
      into(network.loss_notice))
      ->group(kTrouble);
  app.add_flag("--hostile", is_hostile_,
               "whatever the contract of a lane allows: puts land torn, late and in any order, "
               "posts are refused, queues are short (8)")
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
          "--kill", fmt::format("rank {} of {} ranks", kill.rank.value(), network.ranks));
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
