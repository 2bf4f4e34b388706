// The properties of a graph that dunlin-graph prints: as text, as JSON, as a row of a comparison.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/graph/graph.h"
#include "collectives/graph/mixing.h"
#include "collectives/graph/properties.h"
#include "collectives/graph/spectral.h"
#include "runtime/status.h"

namespace dunlin::tools {

struct GraphReport {
  std::string spec;
  int nodes = 0;
  std::size_t edges = 0;
  collective::DegreeRange degrees;
  std::optional<int> regular_degree;
  bool is_undirected = false;
  bool is_strongly_connected = false;
  std::optional<collective::Diameter> diameter;  // absent when not strongly connected
  collective::Weighting weighting = collective::Weighting::kUniform;
  collective::Spectrum spectrum;
  std::optional<double> mixing_rounds;  // absent when the spectrum does not tell
  // edges / (nodes * (nodes - 1)), as each edge carries one model per reduce.
  double bytes_relative_to_complete = 1;
};

Result<GraphReport> measure(const collective::Graph& graph, collective::Weighting weighting);

std::string to_text(const GraphReport& report);
nlohmann::ordered_json to_json(const GraphReport& report);

// One graph of a comparison: its report, or the reason why there is none.
struct ComparedGraph {
  std::string spec;
  Result<GraphReport> report;
};
std::string to_table(std::span<const ComparedGraph> graphs);
nlohmann::ordered_json to_json(const ComparedGraph& graph);

}  // namespace dunlin::tools
