#include <fmt/format.h>

#include <algorithm>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/counters.h"
#include "runtime/topology.h"
#include "runtime/wait.h"
#include "tools/dunlin-info/report.h"
#include "transports/fabric.h"

namespace dunlin::tools {
namespace {

// Creates the transport in a job of one rank, and connects the rank to itself.
Status try_transport(const transport::TransportFactory& factory, const Config& config,
                     const Clock& clock) {
  constexpr Rank kSelf(0);
  InProcessJob job(1);
  const auto bootstrap = job.bootstrap(kSelf);
  DUNLIN_ASSIGN(const auto board, transport::NotifyBoard::create(1));
  Counters counters(1);
  DUNLIN_ASSIGN(const auto made,
                factory.make({kSelf, 0, 0, *board, bootstrap->peers(), bootstrap->mail(),
                              bootstrap->key(), counters, clock, config}));
  DUNLIN_TRY(made->open());
  DUNLIN_TRY(made->face(made->outline()));
  const Bytes address = made->address();
  DUNLIN_TRY(made->reach(kSelf, address));
  DUNLIN_ASSIGN(const auto link, made->connect(kSelf, address));
  link->data().close();
  link->control().close();
  return Status::ok();
}

Json policy(const Config& config, int ranks, int cores) {
  const WaitPolicy found = WaitPolicy::from(config, ranks, cores);
  const auto count = [](long polls) { return polls < 0 ? Json("forever") : Json(polls); };
  Json json;
  json["spins"] = count(found.spins);
  if (found.spins >= 0) json["then_yields"] = count(found.yields);
  if (found.spins >= 0 && found.yields >= 0) json["then"] = "sleeps until something arrives";
  return json;
}

}  // namespace

Json transport_report(const Config& config, const Clock& clock) {
  Json json = Json::object();
  for (const auto& factory : transport::builtin_transports()) {
    Json entry;
    const Status status = try_transport(factory, config, clock);
    entry["works"] = status.is_ok();
    if (!status.is_ok()) entry["reason"] = std::string(status.message());
    const auto place = std::find(config.transports.begin(), config.transports.end(), factory.name);
    if (place == config.transports.end()) {
      entry["preference"] = "not used (DUNLIN_TRANSPORTS leaves it out)";
    } else {
      entry["preference"] = place - config.transports.begin() + 1;
    }
    json[factory.name] = std::move(entry);
  }
  return json;
}

Json waiting_report(const Config& config) {
  const int cores = host_topology().cores;
  Json json;
  json[fmt::format("up to {} ranks here", cores)] = policy(config, cores, cores);
  json["more ranks"] = policy(config, cores + 1, cores);
  return json;
}

Json config_report(const Config& config, const Environment& environment) {
  Json json = Json::object();
  for (const ConfigEntry& entry : describe(config, environment)) {
    json[entry.name] = {{"value", entry.value},           {"is_set", entry.is_set},
                        {"default", entry.default_value}, {"unit", entry.unit},
                        {"range", entry.range},           {"help", entry.help}};
  }
  return json;
}

}  // namespace dunlin::tools
