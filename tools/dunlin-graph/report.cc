#include "tools/dunlin-graph/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace dunlin::tools {
namespace {

std::string yes_no(bool value) {
  return value ? "yes" : "no";
}

std::string range_text(int low, int high) {
  return low == high ? fmt::format("{}", low) : fmt::format("{}..{}", low, high);
}

std::string diameter_text(const GraphReport& report) {
  if (!report.diameter) return "-";
  return range_text(report.diameter->lower, report.diameter->upper);
}

std::string gap_text(const collective::Spectrum& spectrum) {
  return fmt::format("{}{:.4g}", spectrum.converged ? "" : "<= ", spectrum.gap);
}

std::string rounds_text(const GraphReport& report) {
  if (!report.mixing_rounds) return "-";
  return *report.mixing_rounds < 1e8 ? fmt::format("{:.0f}", *report.mixing_rounds)
                                     : fmt::format("{:.3g}", *report.mixing_rounds);
}

std::string spectrum_note(const collective::Spectrum& spectrum) {
  std::string note =
      fmt::format("({}, sigma_1 {:.6g}, sigma_2 {:.6g} +- {:.1g})", to_string(spectrum.method),
                  spectrum.sigma_1, spectrum.sigma_2, spectrum.error_bound);
  if (!spectrum.converged) note += "; not converged, an upper bound";
  return note;
}

std::string rounds_note(const GraphReport& report) {
  if (report.mixing_rounds) {
    return fmt::format("reduces to shrink differences to {:g}", collective::kMixedTo);
  }
  if (!report.is_strongly_connected) return "never, because not strongly connected";
  if (!report.spectrum.is_doubly_stochastic) return "unknown, because P is not doubly stochastic";
  return "unknown, because the gap is not known well enough";
}

std::string doubly_stochastic_note(const GraphReport& report) {
  if (report.spectrum.is_doubly_stochastic) return "every node has the same influence";
  if (report.is_undirected) return "some nodes count for more; try --weights metropolis";
  return "some nodes count for more";
}

}  // namespace

Result<GraphReport> measure(const collective::Graph& graph, collective::Weighting weighting) {
  DUNLIN_ASSIGN(const auto matrix, collective::MixingMatrix::make(graph, weighting));
  GraphReport report;
  report.spec = graph.spec();
  report.nodes = graph.nodes();
  report.edges = graph.edges();
  report.degrees = degree_range(graph);
  report.regular_degree = collective::regular_degree(graph);
  report.is_undirected = collective::is_undirected(graph);
  report.is_strongly_connected = collective::is_strongly_connected(graph);
  report.diameter = collective::diameter(graph);
  report.weighting = weighting;
  DUNLIN_ASSIGN(report.spectrum, collective::spectrum(matrix));
  report.mixing_rounds = collective::mixing_rounds(report.spectrum);
  if (graph.nodes() > 1) {
    const double nodes = graph.nodes();
    report.bytes_relative_to_complete = static_cast<double>(graph.edges()) / (nodes * (nodes - 1));
  }
  return report;
}

std::string to_text(const GraphReport& report) {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value, const std::string& note) {
    text += fmt::format("{:<19}{:<14}{}", name, value, note);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  const auto& degrees = report.degrees;
  line("graph", report.spec, "");
  line("nodes", fmt::format("{}", report.nodes), "");
  line("edges", fmt::format("{}", report.edges), report.is_undirected ? "undirected" : "directed");
  line("in-degree", range_text(degrees.min_in, degrees.max_in), "");
  line("out-degree", range_text(degrees.min_out, degrees.max_out), "");
  line("regular", yes_no(report.regular_degree.has_value()), "");
  line("strongly connected", yes_no(report.is_strongly_connected), "");
  line("diameter", diameter_text(report),
       report.diameter && !report.diameter->is_exact() ? "bounds" : "");
  line("weights", to_string(report.weighting), "");
  line("doubly stochastic", yes_no(report.spectrum.is_doubly_stochastic),
       doubly_stochastic_note(report));
  line("spectral gap", gap_text(report.spectrum), spectrum_note(report.spectrum));
  line("mixing time", rounds_text(report), rounds_note(report));
  line("bytes per reduce", fmt::format("{:.4g} %", 100 * report.bytes_relative_to_complete),
       "of the complete graph's");
  return text;
}

nlohmann::ordered_json to_json(const GraphReport& report) {
  using Json = nlohmann::ordered_json;
  const auto optional = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  const auto& degrees = report.degrees;
  const auto& spectrum = report.spectrum;
  Json json{{"graph", report.spec},
            {"nodes", report.nodes},
            {"edges", report.edges},
            {"undirected", report.is_undirected},
            {"in_degree", {{"min", degrees.min_in}, {"max", degrees.max_in}}},
            {"out_degree", {{"min", degrees.min_out}, {"max", degrees.max_out}}},
            {"regular_degree", optional(report.regular_degree)},
            {"strongly_connected", report.is_strongly_connected},
            {"diameter", nullptr},
            {"weights", to_string(report.weighting)},
            {"doubly_stochastic", spectrum.is_doubly_stochastic},
            {"spectral_gap", spectrum.gap},
            {"sigma_1", spectrum.sigma_1},
            {"sigma_2", spectrum.sigma_2},
            {"spectral_method", to_string(spectrum.method)},
            {"spectral_error_bound", spectrum.error_bound},
            {"spectral_converged", spectrum.converged},
            {"mixing_rounds", optional(report.mixing_rounds)},
            {"mixed_to", collective::kMixedTo},
            {"bytes_relative_to_complete", report.bytes_relative_to_complete}};
  if (report.diameter) {
    json["diameter"] = {{"lower", report.diameter->lower}, {"upper", report.diameter->upper}};
  }
  return json;
}

std::string to_table(std::span<const ComparedGraph> graphs) {
  constexpr const char* kRow = "{:<20} {:>10} {:>10} {:>13} {:>7} {:>12} {:>10} {:>9}\n";
  std::string text = fmt::format(kRow, "graph", "edges", "in-degree", "diameter", "doubly", "gap",
                                 "mixing", "bytes");
  for (const ComparedGraph& graph : graphs) {
    if (!graph.report) {
      text += fmt::format("{:<20} {}\n", graph.spec, graph.report.status().message());
      continue;
    }
    const GraphReport& report = *graph.report;
    text += fmt::format(kRow, report.spec, report.edges,
                        range_text(report.degrees.min_in, report.degrees.max_in),
                        diameter_text(report), yes_no(report.spectrum.is_doubly_stochastic),
                        gap_text(report.spectrum), rounds_text(report),
                        fmt::format("{:.3g} %", 100 * report.bytes_relative_to_complete));
  }
  return text;
}

nlohmann::ordered_json to_json(const ComparedGraph& graph) {
  if (graph.report) return to_json(*graph.report);
  return {{"graph", graph.spec}, {"error", graph.report.status().to_string()}};
}

}  // namespace dunlin::tools
