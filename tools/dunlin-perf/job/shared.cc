#include "tools/dunlin-perf/job/shared.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/config.h"
#include "runtime/memory/host_memory.h"
#include "runtime/units.h"

namespace dunlin::perf {
namespace {

using Json = nlohmann::ordered_json;

constexpr Duration kMicrosecond = std::chrono::microseconds(1);
constexpr Duration kMillisecond = std::chrono::milliseconds(1);

Result<Bench> bench_from(const std::string& name) {
  for (const BenchName& each : kBenches) {
    if (name == each.name) return each.bench;
  }
  return Status(Code::kInvalidArgument,
                fmt::format("this dunlin-perf has no benchmark '{}'", name));
}

Json to_json(const ConsistencyOptions& options) {
  Json json{{"graph", options.graph},
            {"count", options.count},
            {"reduces", options.reduces},
            {"sync", options.sync},
            {"compute", to_seconds(options.compute) * 1e6}};
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
  DUNLIN_ASSIGN(options.compute, duration_from(json.at("compute"), kMicrosecond, kLongestCompute));
  if (!json.at("straggler").is_null()) {
    options.straggler = parse_straggler(json.at("straggler"));
    if (!options.straggler) return Status(Code::kInvalidArgument, "a malformed straggler");
  }
  return options;
}

Json to_json(const CollectiveOptions& options) {
  return {{"algorithm", options.algorithm},
          {"type", options.type},
          {"op", options.op},
          {"in-place", options.is_in_place},
          {"graph", options.graph},
          {"tensors", options.tensors},
          {"group-size", options.group_size},
          {"progress-every", to_seconds(options.progress_every) * 1e6}};
}

Result<CollectiveOptions> collective_from(const Json& json) {
  CollectiveOptions options;
  options.algorithm = json.at("algorithm");
  options.type = json.at("type");
  options.op = json.at("op");
  options.is_in_place = json.at("in-place");
  options.graph = json.at("graph");
  options.tensors = json.at("tensors");
  options.group_size = json.at("group-size");
  DUNLIN_ASSIGN(options.progress_every,
                duration_from(json.at("progress-every"), kMicrosecond, kLongestCompute));
  return options;
}

Json to_json(const RingOptions& options) {
  Json extras = Json::array();
  for (const Duration extra : options.extras) extras.push_back(to_seconds(extra) * 1e3);
  return {{"step", to_seconds(options.step) * 1e3},
          {"late-by", std::move(extras)},
          {"alpha", options.alpha},
          {"moves-every", options.moves_every}};
}

Result<RingOptions> ring_from(const Json& json) {
  RingOptions options;
  DUNLIN_ASSIGN(options.step, duration_from(json.at("step"), kMillisecond, kLongestStep));
  for (const double extra : json.at("late-by").get<std::vector<double>>()) {
    DUNLIN_ASSIGN(options.extras.emplace_back(), duration_from(extra, kMillisecond, kLongestStep));
  }
  options.alpha = json.at("alpha");
  options.moves_every = json.at("moves-every");
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
  options.is_put = json.at("put");
  DUNLIN_ASSIGN(options.memory, parse_memory(json.at("memory").get<std::string>()));
  options.checks = json.at("check");
  options.has_histogram = json.at("report-histogram");
  DUNLIN_ASSIGN(options.consistency, consistency_from(json));
  DUNLIN_ASSIGN(options.collective, collective_from(json));
  DUNLIN_ASSIGN(options.ring, ring_from(json));
  options.named = json.at("named").get<std::set<std::string>>();
  return options;
}

std::string problem_of_sizes(const Shared& options) {
  if (options.sizes.empty()) return "no size to measure";
  const std::size_t largest = std::ranges::max(options.sizes);
  if (largest > kLargestSize) return "a size larger than any memory";
  // A rank takes a few times its largest size, and may still find that there is too little.
  if (options.memory.kind != MemoryChoice::Kind::kCuda && largest > host_memory_bytes()) {
    return fmt::format("a size of {}, on a host with {} of memory",
                       format_bytes(static_cast<double>(largest)),
                       format_bytes(static_cast<double>(host_memory_bytes())));
  }
  if (options.bench == Bench::kPutLatency && std::ranges::min(options.sizes) == 0)
    return "a put of 0 bytes has no last byte to poll: sizes begin at 1";
  return "";
}

std::string problem_of_repetitions(const Shared& options) {
  if (std::max(options.iterations, options.warmup) > kMostIterations) return "too many iterations";
  if (options.duration < Duration::zero() || options.duration > kLongestDuration)
    return "a duration of more than a day";
  if (options.iterations != 0 && options.duration != Duration::zero())
    return "both a duration and a number of iterations";
  return "";
}

std::string problem_of_numbers(const Shared& options) {
  if (!(options.ring.alpha > 1 && options.ring.alpha <= 1e6)) return "an alpha of 1 or less";
  if (options.collective.tensors == 0 || options.collective.tensors > kMostTensors)
    return fmt::format("{} tensors: 1 to {}", options.collective.tensors, kMostTensors);
  if (options.depth > kDeepest) return fmt::format("a depth of more than {}", kDeepest);
  if (options.queue_pairs > kMostQueuePairs)
    return fmt::format("more than {} queue pairs", kMostQueuePairs);
  if (options.consistency.count == 0 || options.consistency.reduces == 0)
    return "nothing to reduce";
  return "";
}

// Returns why a benchmark cannot measure GPU memory, and which one can instead; null: it can.
const char* reason_against_gpus(Bench bench) {
  switch (bench) {
    case Bench::kPut:
    case Bench::kPutNotify:
    case Bench::kGet:
    case Bench::kAllReduce:
    case Bench::kReduceScatter:
    case Bench::kAllGather:
    case Bench::kBroadcast:
    case Bench::kAllToAll:
    case Bench::kReduce:
    case Bench::kOverlap:
    case Bench::kTune:
      return nullptr;
    case Bench::kPutLatency:
      return "the CPU polls the last byte, which it cannot read there; measure put-notify";
    case Bench::kNotify:
      return "notifications are words of host memory and carry no data; measure put-notify";
    case Bench::kAtomic:
      return "shm has no atomics on it; measure put-notify";
    case Bench::kChannel:
      return "the slots of a channel are host memory; measure put-notify";
    case Bench::kBarrier:
    case Bench::kMutex:
      return "it moves no data; leave --memory out";
    case Bench::kWindow:
    case Bench::kNeighborAllReduce:
    case Bench::kPartial:
    case Bench::kGroups:
    case Bench::kStragglerRing:
    case Bench::kConsistency:
      return "the CPU computes the sums; measure all-reduce";
  }
  return "it is unknown";
}

std::string problem_of_memory(const Shared& options) {
  using Kind = MemoryChoice::Kind;
  const char* const reason = reason_against_gpus(options.bench);
  if (options.memory.kind == Kind::kCuda && reason != nullptr)
    return fmt::format("it cannot measure GPU memory: {}", reason);
  if (options.memory.kind == Kind::kAny && !takes_any_memory(options.bench))
    return "--memory is host or cuda[:N]; any is for collectives";
  if (options.memory.kind == Kind::kWrapped && !takes_wrapped_memory(options.bench))
    return "--memory wrapped is for put, put-notify and get";
  return "";
}

}  // namespace

bool takes_any_memory(Bench bench) {
  return bench == Bench::kPartial || bench == Bench::kAllReduce || bench == Bench::kReduceScatter ||
         bench == Bench::kAllGather || bench == Bench::kBroadcast || bench == Bench::kAllToAll ||
         bench == Bench::kReduce || bench == Bench::kOverlap;
}

bool takes_wrapped_memory(Bench bench) {
  return bench == Bench::kPut || bench == Bench::kPutNotify || bench == Bench::kGet;
}

bool takes_gpu_memory(Bench bench) {
  return reason_against_gpus(bench) == nullptr;
}

Result<MemoryChoice> parse_memory(std::string_view text) {
  using Kind = MemoryChoice::Kind;
  constexpr std::string_view kNumbered = "cuda:";
  if (text == "host" || text == "registered") return MemoryChoice{};
  if (text == "wrapped") return MemoryChoice{Kind::kWrapped};
  if (text == "any") return MemoryChoice{Kind::kAny};
  if (text == "cuda") return MemoryChoice{Kind::kCuda};
  if (text.starts_with(kNumbered)) {
    const auto number = parse_integer(text.substr(kNumbered.size()));
    if (number && *number >= 0 && *number <= kHighestGpu)
      return MemoryChoice{Kind::kCuda, static_cast<int>(*number)};
  }
  return Status(Code::kInvalidArgument,
                fmt::format("'{}' is none of host, wrapped, cuda, cuda:N (GPU N, counted from 0), "
                            "and for collectives registered and any",
                            text));
}

std::string to_string(const MemoryChoice& memory) {
  if (memory.kind == MemoryChoice::Kind::kHost) return "host";
  if (memory.kind == MemoryChoice::Kind::kWrapped) return "wrapped";
  if (memory.kind == MemoryChoice::Kind::kAny) return "any";
  return memory.gpu < 0 ? "cuda" : fmt::format("cuda:{}", memory.gpu);
}

const char* to_string(Bench bench) {
  const auto* const found = std::ranges::find(kBenches, bench, &BenchName::bench);
  return found == std::end(kBenches) ? "unknown" : found->name;
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

Result<Duration> duration_from(double count, Duration unit, Duration longest) {
  const double nanoseconds = count * static_cast<double>(unit.count());
  if (!(nanoseconds >= 0 && nanoseconds <= static_cast<double>(longest.count()))) {
    return Status(Code::kInvalidArgument, fmt::format("a time of {} ns is not from 0 to {}",
                                                      nanoseconds, exact_time(longest)));
  }
  return Duration(std::llround(nanoseconds));
}

std::string problem_of(const Shared& options) {
  for (const auto check :
       {problem_of_sizes, problem_of_repetitions, problem_of_numbers, problem_of_memory}) {
    if (std::string problem = check(options); !problem.empty()) return problem;
  }
  if (options.bench == Bench::kOverlap && options.collective.algorithm == "all")
    return "overlap takes one algorithm at a time";
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
            {"put", options.is_put},
            {"memory", to_string(options.memory)},
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
    // The options of another benchmark are not those of this one.
    if (!same_bench && name != "benchmark") continue;
    text += fmt::format("{}{}: {} at the listener, {} at the client", text.empty() ? "" : "; ",
                        name == "benchmark" ? "the benchmark" : "--" + name, ours.at(name).dump(),
                        client.named.contains(name) ? theirs.at(name).dump() : "the default");
  }
  return text;
}

}  // namespace dunlin::perf
