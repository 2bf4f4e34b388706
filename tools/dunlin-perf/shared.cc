#include "tools/dunlin-perf/shared.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace dunlin::perf {
namespace {

using Json = nlohmann::ordered_json;

Result<Bench> bench_from(const std::string& name) {
  for (const Bench bench : kBenches) {
    if (name == to_string(bench)) return bench;
  }
  return Status(Code::kInvalidArgument,
                fmt::format("this dunlin-perf has no benchmark '{}'", name));
}

Json to_json(const ConsistencyOptions& options) {
  Json json{{"graph", options.graph},
            {"count", options.count},
            {"reduces", options.reduces},
            {"sync", options.sync},
            {"compute-us", options.compute.count() / 1000}};
  json["straggler"] =
      options.straggler
          ? Json(fmt::format("{}:{}", options.straggler->rank, options.straggler->factor))
          : Json();
  return json;
}

Result<ConsistencyOptions> consistency_from(const Json& json) {
  ConsistencyOptions options;
  options.graph = json.at("graph");
  options.count = json.at("count");
  options.reduces = json.at("reduces");
  options.sync = json.at("sync");
  options.compute = std::chrono::microseconds(json.at("compute-us").get<std::int64_t>());
  if (!json.at("straggler").is_null()) {
    options.straggler = parse_straggler(json.at("straggler"));
    if (!options.straggler) return Status(Code::kInvalidArgument, "a straggler that is none");
  }
  return options;
}

Json to_json(const CollectiveOptions& options) {
  return {{"algorithm", options.algorithm},
          {"type", options.type},
          {"op", options.op},
          {"in-place", options.is_in_place},
          {"memory", options.memory},
          {"graph", options.graph},
          {"tensors", options.tensors},
          {"group-size", options.group_size},
          {"progress-every", options.progress_every.count() / 1000}};
}

CollectiveOptions collective_from(const Json& json) {
  CollectiveOptions options;
  options.algorithm = json.at("algorithm");
  options.type = json.at("type");
  options.op = json.at("op");
  options.is_in_place = json.at("in-place");
  options.memory = json.at("memory");
  options.graph = json.at("graph");
  options.tensors = json.at("tensors");
  options.group_size = json.at("group-size");
  options.progress_every =
      std::chrono::microseconds(json.at("progress-every").get<std::uint32_t>());
  return options;
}

Json to_json(const RingOptions& options) {
  Json extras = Json::array();
  for (const Duration extra : options.extras) extras.push_back(to_seconds(extra) * 1e3);
  return {{"step", to_seconds(options.step) * 1e3},
          {"late-by", std::move(extras)},
          {"alpha", options.alpha}};
}

Result<RingOptions> ring_from(const Json& json) {
  RingOptions options;
  DUNLIN_ASSIGN(options.step, milliseconds_from(json.at("step")));
  for (const double extra : json.at("late-by").get<std::vector<double>>()) {
    DUNLIN_ASSIGN(options.extras.emplace_back(), milliseconds_from(extra));
  }
  options.alpha = json.at("alpha");
  return options;
}

Result<Shared> read(const Json& json) {
  Shared options;
  DUNLIN_ASSIGN(options.bench, bench_from(json.at("benchmark")));
  options.sizes = json.at("size").get<std::vector<std::size_t>>();
  options.iterations = json.at("iterations");
  options.duration =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(json.at("duration")));
  options.warmup = json.at("warmup");
  options.depth = json.at("depth");
  options.queue_pairs = json.at("qp-count");
  options.is_bidirectional = json.at("bidirectional");
  options.checks = json.at("check");
  options.has_histogram = json.at("report-histogram");
  DUNLIN_ASSIGN(options.consistency, consistency_from(json));
  options.collective = collective_from(json);
  DUNLIN_ASSIGN(options.ring, ring_from(json));
  options.named = json.at("named").get<std::set<std::string>>();
  return options;
}

}  // namespace

const char* to_string(Bench bench) {
  switch (bench) {
    case Bench::kPut:
      return "put";
    case Bench::kPutLatency:
      return "put-latency";
    case Bench::kPutNotify:
      return "put-notify";
    case Bench::kNotify:
      return "notify";
    case Bench::kGet:
      return "get";
    case Bench::kAtomic:
      return "atomic";
    case Bench::kChannel:
      return "channel";
    case Bench::kBarrier:
      return "barrier";
    case Bench::kMutex:
      return "mutex";
    case Bench::kWindow:
      return "window";
    case Bench::kAllReduce:
      return "all-reduce";
    case Bench::kReduceScatter:
      return "reduce-scatter";
    case Bench::kAllGather:
      return "all-gather";
    case Bench::kBroadcast:
      return "broadcast";
    case Bench::kAllToAll:
      return "all-to-all";
    case Bench::kReduce:
      return "reduce";
    case Bench::kNeighborAllReduce:
      return "neighbor-all-reduce";
    case Bench::kPartial:
      return "partial";
    case Bench::kGroups:
      return "groups";
    case Bench::kOverlap:
      return "overlap";
    case Bench::kStragglerRing:
      return "straggler-ring";
    case Bench::kTune:
      return "tune";
    case Bench::kConsistency:
      return "consistency";
  }
  return "unknown";
}

std::optional<Straggler> parse_straggler(const std::string& text) {
  Straggler straggler;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%d:%lf%c", &straggler.rank, &straggler.factor, &rest) != 2 ||
      straggler.rank < 0 || !(straggler.factor >= 1)) {
    return std::nullopt;
  }
  return straggler;
}

Result<Duration> milliseconds_from(double milliseconds) {
  if (!(milliseconds >= 0 && milliseconds <= kLongestStep)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} ms: a step takes 0 to {}", milliseconds, kLongestStep));
  }
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double, std::milli>(milliseconds));
}

std::string problem_of(const Shared& options) {
  if (options.sizes.empty()) return "no size to measure";
  if (*std::ranges::max_element(options.sizes) > kLargestSize) return "a size beyond any memory";
  if (options.bench == Bench::kPutLatency && *std::ranges::min_element(options.sizes) == 0) {
    return "a put of 0 bytes has no last byte to poll: sizes begin at 1";
  }
  if (options.bench == Bench::kOverlap && options.collective.algorithm == "all") {
    return "overlap is of one algorithm at a time";
  }
  if (!(options.ring.alpha > 1 && options.ring.alpha <= 1e6)) return "an alpha of 1 or less";
  if (options.collective.tensors == 0 || options.collective.tensors > kMostTensors) {
    return fmt::format("{} tensors: 1 to {}", options.collective.tensors, kMostTensors);
  }
  if (options.depth > kDeepest) return fmt::format("a depth of more than {}", kDeepest);
  if (options.queue_pairs > kMostQueuePairs)
    return fmt::format("more than {} queue pairs", kMostQueuePairs);
  if (std::max(options.iterations, options.warmup) > kMostIterations) return "too many iterations";
  if (options.duration < Duration::zero() || to_seconds(options.duration) > kLongestSeconds) {
    return "a duration of more than a day";
  }
  if (options.iterations != 0 && options.duration != Duration::zero()) {
    return "both a duration and a number of iterations";
  }
  if (options.consistency.count == 0 || options.consistency.reduces == 0)
    return "nothing to reduce";
  return "";
}

Json to_json(const Shared& options) {
  Json json{{"benchmark", to_string(options.bench)},
            {"size", options.sizes},
            {"iterations", options.iterations},
            {"duration", to_seconds(options.duration)},
            {"warmup", options.warmup},
            {"depth", options.depth},
            {"qp-count", options.queue_pairs},
            {"bidirectional", options.is_bidirectional},
            {"check", options.checks},
            {"report-histogram", options.has_histogram},
            {"named", options.named}};
  json.update(to_json(options.consistency));
  json.update(to_json(options.collective));
  json.update(to_json(options.ring));
  return json;
}

Result<Shared> shared_from_json(const Json& json) try {
  DUNLIN_ASSIGN(Shared options, read(json));
  if (const std::string problem = problem_of(options); !problem.empty()) {
    return Status(Code::kInvalidArgument, problem);
  }
  return options;
} catch (const Json::exception& error) {
  return Status(Code::kCorrupted, fmt::format("malformed options: {}", error.what()));
}

std::string disagreement(const Shared& listener, const Shared& client) {
  const Json ours = to_json(listener);
  const Json theirs = to_json(client);
  const bool same_bench = listener.bench == client.bench;
  std::string text;
  for (const std::string& name : listener.named) {
    if (ours.at(name) == theirs.at(name)) continue;
    // Options of another benchmark say nothing about this one's.
    if (!same_bench && name != "benchmark") continue;
    text += fmt::format("{}{}: {} at the listener, {} at the client", text.empty() ? "" : "; ",
                        name == "benchmark" ? "the benchmark" : "--" + name, ours.at(name).dump(),
                        client.named.contains(name) ? theirs.at(name).dump() : "the default");
  }
  return text;
}

}  // namespace dunlin::perf
