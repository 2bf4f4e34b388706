#include "tools/dunlin-perf/benchmarks/consistency.h"

#include <fmt/format.h>

#include "collectives/graph/generators.h"
#include "tools/dunlin-perf/benchmarks/benchmarks.h"

namespace dunlin::perf {
namespace {

using collective::SyncMode;

constexpr std::uint32_t kDepth = 2;

Result<std::vector<SyncMode>> modes_of(const std::string& sync) {
  if (sync == "all") return std::vector{SyncMode::kNotifyAck, SyncMode::kBsp, SyncMode::kAsync};
  DUNLIN_ASSIGN(const SyncMode mode, collective::parse_sync_mode(sync));
  return std::vector{mode};
}

std::size_t largest_in_degree(const collective::Graph& graph) {
  int largest = 0;
  for (int node = 0; node < graph.nodes(); ++node)
    largest = std::max(largest, graph.in_degree(node));
  return static_cast<std::size_t>(largest);
}

std::string describe(const ConsistencyOptions& options, std::uint32_t depth, const Job& job,
                     std::size_t in_degree) {
  std::string text = fmt::format(
      "share of reduces by number of consistent inputs: {} ranks, {} (in-degree {}), {} floats, "
      "{} reduces per rank, {} slots per in-neighbor",
      job.size(), options.graph, in_degree, options.count, options.reduces, depth);
  if (options.straggler) {
    text += fmt::format(", rank {} {} times slower", options.straggler->rank,
                        options.straggler->factor);
  }
  return text +
         "\ntorn, stale: inputs left out; wrong: reduces whose result isn't what their inputs "
         "give; "
         "reduces/s: of all ranks; waiting: of a rank's time\n" +
         format_consistency_heading(in_degree);
}

nlohmann::ordered_json settings(const ConsistencyOptions& options, SyncMode mode,
                                std::size_t in_degree) {
  nlohmann::ordered_json json{
      {"graph", options.graph},
      {"in_degree", in_degree},
      {"count", options.count},
      {"sync", to_string(mode)},
      {"compute_us", std::chrono::duration<double, std::micro>(options.compute).count()}};
  if (options.straggler) {
    json["straggler"] = fmt::format("{}:{}", options.straggler->rank, options.straggler->factor);
  }
  return json;
}

// Returns the tally of the job on rank 0.
Result<Tally> gather(Job& job, const Tally& own) {
  DUNLIN_ASSIGN(const auto texts, job.gather(job.ranks(), to_json(own).dump()));
  Tally total;
  for (const std::string& text : texts)
    total.add(tally_from_json(nlohmann::ordered_json::parse(text)));
  total.waited_seconds /= job.size();
  return total;
}

// NOTIFY-ACK guarantees all inputs and their content.
Status judge(SyncMode mode, const Tally& tally) {
  if (mode != SyncMode::kNotifyAck) return Status::ok();
  if (tally.complete == tally.reduces() && tally.wrong == 0) return Status::ok();
  return {Code::kCorrupted,
          fmt::format("NOTIFY-ACK: {} of {} reduces without all inputs, {} with wrong content",
                      tally.reduces() - tally.complete, tally.reduces(), tally.wrong)};
}

}  // namespace

Status run_consistency(const Options& options, Job& job, const Output& output) {
  const ConsistencyOptions& own = options.consistency;
  const std::uint32_t depth = options.depth != 0 ? options.depth : kDepth;
  DUNLIN_ASSIGN(const auto graph, collective::make_graph(own.graph, job.size()));
  DUNLIN_ASSIGN(const auto modes, modes_of(own.sync));
  if (own.straggler && own.straggler->rank >= job.size()) {
    return {Code::kInvalidArgument,
            fmt::format("--straggler: rank {} in a job of {}", own.straggler->rank, job.size())};
  }
  const std::size_t in_degree = largest_in_degree(graph);
  if (job.is_root()) DUNLIN_TRY(output.text(describe(own, depth, job, in_degree)));
  Status verdict;
  for (const SyncMode mode : modes) {
    DUNLIN_ASSIGN(const Tally tally, run_reduces(own, depth, job, graph, mode));
    DUNLIN_ASSIGN(const Tally total, gather(job, tally));
    if (!job.is_root()) continue;
    DUNLIN_TRY(output.text(format_consistency(mode, total, in_degree)));
    nlohmann::ordered_json line = settings(own, mode, in_degree);
    line.update(to_json(total));
    DUNLIN_TRY(output.json(context(options, job, depth), line));
    if (Status found = judge(mode, total); !found.is_ok()) verdict = std::move(found);
  }
  return verdict;
}

}  // namespace dunlin::perf
