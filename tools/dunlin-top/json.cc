#include "tools/dunlin-top/json.h"

#include <chrono>

#include "runtime/flight/report.h"
#include "tools/dunlin-top/screen.h"

namespace dunlin::top {
namespace {

using Json = nlohmann::ordered_json;
using flight::JobView;
using flight::RankView;
using flight::Straggler;

double seconds(Duration time) {
  return std::chrono::duration<double>(time).count();
}

Json json_of(const RankView& rank, const JobView& job) {
  Json json{{"rank", rank.now.rank.value()},
            {"pid", rank.now.pid},
            {"state", state_of(rank, job)},
            {"period_s", seconds(rank.period)},
            {"wait_share", rank.wait_share},
            {"operations", rank.operations},
            {"steps", rank.steps}};
  if (rank.now.step_began) json["step"] = rank.now.step;
  if (rank.own_step) json["own_step_s"] = seconds(*rank.own_step);
  if (!rank.now.operation.empty()) {
    json["operation"] = rank.now.operation;
    json["operation_bytes"] = rank.now.operation_bytes;
  }
  if (rank.now.awaited != Rank()) {
    json["awaits"] = rank.now.awaited.value();
    json["awaits_s"] = seconds(rank.now.at - rank.now.awaited_since);
  }
  json["waits"] = Json::array();
  for (const flight::DirectWait& wait : rank.waits)
    json["waits"].push_back({{"peer", wait.peer.value()}, {"waited_s", seconds(wait.waited)}});
  json["transports"] = Json::object();
  for (const flight::TransportUse& each : rank.bytes)
    json["transports"][each.name] = {{"put_bytes", each.put}, {"got_bytes", each.got}};
  if (!rank.now.error.empty()) json["error"] = rank.now.error;
  return json;
}

Json json_of(const Straggler& straggler, const JobView& job) {
  Json json{{"rank", straggler.rank.value()},
            {"trouble", to_string(straggler.trouble)},
            {"lost_share", straggler.lost_share},
            {"idle_s", seconds(straggler.idle)}};
  json["waiters"] = Json::array();
  for (const Rank waiter : straggler.waiters) json["waiters"].push_back(waiter.value());
  if (straggler.own_step) json["own_step_s"] = seconds(*straggler.own_step);
  if (straggler.median_step) json["median_step_s"] = seconds(*straggler.median_step);
  json["text"] = sentence(straggler, job);
  return json;
}

}  // namespace

Json to_json(const JobView& job) {
  Json json{{"job", job.job}, {"host", job.host}, {"program", job.program}, {"size", job.size}};
  json["ranks"] = Json::array();
  for (const RankView& rank : job.ranks) json["ranks"].push_back(json_of(rank, job));
  json["stragglers"] = Json::array();
  for (const Straggler& each : job.stragglers) json["stragglers"].push_back(json_of(each, job));
  return json;
}

}  // namespace dunlin::top
