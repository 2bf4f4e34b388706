// dunlin-graph: makes a node graph, prints its properties, compares graphs, draws them.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/command_line/command_line.h"
#include "collectives/graph/edge_list.h"
#include "collectives/graph/generators.h"
#include "runtime/files/output_file.h"
#include "runtime/print.h"
#include "tools/dunlin-graph/report.h"
#include "tools/dunlin-graph/svg.h"
#include "tools/lib/output.h"
#include "tools/lib/svg_name.h"

namespace dunlin::tools {
namespace {

// Exit codes.
constexpr int kFailure = 1;

struct Options {
  std::string spec;
  int nodes = 0;
  std::string weights = "uniform";
  bool compare = false;
  bool require_connected = false;
  std::string json;  // as Output::open() takes it
  std::string edges_path;
  std::string svg_path;
};

std::string footer() {
  std::string text = "Graphs:\n";
  for (const auto& family : collective::graph_families()) {
    text += help_entry(family.usage, family.help);
  }
  return text +
         "\nExit codes: 0 done, 1 failed (or not connected under --require-connected), 2 wrong "
         "usage.";
}

void declare(CLI::App& app, Options& options) {
  app.add_option("SPEC", options.spec, "the graph, such as root-expander or mesh:4x2");
  app.add_option("-n,--nodes", options.nodes, "number of nodes; not needed when SPEC has it")
      ->check(CLI::Range(1, collective::kMaxNodes));
  add_choice(app, "--weights", options.weights, {"uniform", "metropolis"},
             "how a node weighs itself and its in-neighbors");
  app.add_flag("--compare", options.compare, "print a table of all graphs of N nodes, and of SPEC");
  app.add_flag("--require-connected", options.require_connected,
               "fail when SPEC is not strongly connected");
  app.add_option("--edges", options.edges_path, "write an edge list, which file:PATH reads")
      ->type_name("FILE");
  app.add_option("--svg", options.svg_path,
                 "draw the graph into this file, whose name ends in .svg")
      ->type_name("FILE");
  add_json_options(app, options.json);
  app.footer(footer());
}

Status check(const Options& options) {
  if (options.spec.empty() && !options.compare) return {Code::kInvalidArgument, "SPEC is missing"};
  if (options.compare && options.nodes == 0) {
    return {Code::kInvalidArgument, "--compare needs --nodes"};
  }
  if (options.spec.empty() &&
      (!options.edges_path.empty() || !options.svg_path.empty() || options.require_connected)) {
    return {Code::kInvalidArgument, "--edges, --svg and --require-connected need SPEC"};
  }
  return options.svg_path.empty() ? Status::ok() : check_svg_name(options.svg_path);
}

Status write_svg(const collective::Graph& graph, const std::string& path) {
  DUNLIN_ASSIGN(const std::string svg, draw_svg(graph));
  return replace_file(path, svg);
}

Status print_comparison(const Options& options, collective::Weighting weighting,
                        const Output& output) {
  std::vector<std::string> specs;
  for (const auto& family : collective::graph_families()) {
    if (family.name == "file") continue;
    specs.push_back(family.name == "random-regular" ? "random-regular:4" : family.name);
  }
  if (!options.spec.empty()) specs.push_back(options.spec);

  std::vector<ComparedGraph> graphs;
  for (const std::string& spec : specs) {
    auto graph = collective::make_graph(spec, options.nodes);
    graphs.push_back({spec, graph ? measure(*graph, weighting) : graph.status()});
  }
  DUNLIN_TRY(output.text(to_table(graphs)));
  for (const ComparedGraph& graph : graphs) DUNLIN_TRY(output.json(to_json(graph)));
  return Status::ok();
}

Status print_report(const collective::Graph& graph, const Options& options,
                    collective::Weighting weighting, const Output& output) {
  DUNLIN_ASSIGN(const GraphReport report, measure(graph, weighting));
  DUNLIN_TRY(output.text(to_text(report)));
  DUNLIN_TRY(output.json(to_json(report)));
  if (options.require_connected && !report.is_strongly_connected) {
    return {Code::kNotFound, fmt::format("graph '{}' is not strongly connected", report.spec)};
  }
  return Status::ok();
}

Status run(const Options& options) {
  DUNLIN_TRY(check(options));
  DUNLIN_ASSIGN(const auto weighting, collective::parse_weighting(options.weights));
  DUNLIN_ASSIGN(const auto output, Output::open(options.json));
  if (options.compare) DUNLIN_TRY(print_comparison(options, weighting, *output));
  if (options.spec.empty()) return Status::ok();

  DUNLIN_ASSIGN(const auto graph, collective::make_graph(options.spec, options.nodes));
  if (!options.edges_path.empty())
    DUNLIN_TRY(collective::write_edge_list(graph, options.edges_path));
  if (!options.svg_path.empty()) DUNLIN_TRY(write_svg(graph, options.svg_path));
  return options.compare ? Status::ok() : print_report(graph, options, weighting, *output);
}

int main(int argc, char** argv) {
  CLI::App app("Makes a node graph, prints its properties, compares graphs, draws them.",
               "dunlin-graph");
  Options options;
  declare(app, options);
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  const Status status = run(options);
  if (status.is_ok()) return 0;
  print_error(fmt::format("dunlin-graph: {}\n", status.message()));
  return status.code() == Code::kInvalidArgument ? kWrongUsage : kFailure;
}

}  // namespace
}  // namespace dunlin::tools

int main(int argc, char** argv) {
  return dunlin::tools::main(argc, argv);
}
