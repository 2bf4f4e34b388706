#include "bindings/python/graph.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/errors.h"
#include "collectives/graph/dynamic.h"
#include "collectives/graph/generators.h"
#include "collectives/graph/properties.h"
#include "collectives/graph/spectral.h"

namespace dunlin::python {
namespace {

namespace py = pybind11;
using collective::Graph;
using collective::MixingMatrix;

std::span<const int> neighbors(const Graph& graph, int node, bool incoming) {
  if (node < 0 || node >= graph.nodes()) {
    raise(Status(Code::kOutOfRange, fmt::format("node {} of {}", node, graph.nodes())));
  }
  return incoming ? graph.in_neighbors(node) : graph.out_neighbors(node);
}

std::vector<int> to_vector(std::span<const int> values) {
  return {values.begin(), values.end()};
}

MixingMatrix matrix_of(const Graph& graph, const std::string& weighting) {
  return take(MixingMatrix::make(graph, take(collective::parse_weighting(weighting))));
}

std::vector<std::pair<int, int>> edges_of(const Graph& graph) {
  std::vector<std::pair<int, int>> edges;
  edges.reserve(graph.edges());
  for (int node = 0; node < graph.nodes(); ++node) {
    for (const int to : graph.out_neighbors(node)) edges.emplace_back(node, to);
  }
  return edges;
}

py::tuple weights_of(const Graph& graph, int node, const std::string& weighting) {
  const std::span<const int> from = neighbors(graph, node, true);
  const collective::NodeWeights weights = matrix_of(graph, weighting).weights_of(node);
  py::dict in;
  for (std::size_t i = 0; i < from.size(); ++i) in[py::int_(from[i])] = weights.in[i];
  return py::make_tuple(weights.self, in);
}

py::dict spectrum_of(const Graph& graph, const std::string& weighting) {
  const MixingMatrix matrix = matrix_of(graph, weighting);
  const auto found = take([&] {
    const py::gil_scoped_release release;
    return collective::spectrum(matrix);
  }());
  py::dict result;
  result["sigma_1"] = found.sigma_1;
  result["sigma_2"] = found.sigma_2;
  result["gap"] = found.gap;
  result["is_doubly_stochastic"] = found.is_doubly_stochastic;
  result["method"] = collective::to_string(found.method);
  result["error_bound"] = found.error_bound;
  result["converged"] = found.converged;
  return result;
}

std::unique_ptr<Graph> from_edges(int nodes, const std::vector<std::pair<int, int>>& pairs) {
  std::vector<collective::Edge> edges;
  edges.reserve(pairs.size());
  for (const auto& [from, to] : pairs) edges.push_back({from, to});
  return std::make_unique<Graph>(take(Graph::from_edges(nodes, edges, "edges")));
}

py::tuple pair_of(const collective::StepPeers& peers) {
  return py::make_tuple(peers.to, peers.from);
}

void check_node(int node, int nodes) {
  if (node < 0 || node >= nodes)
    raise(Status(Code::kOutOfRange, fmt::format("node {} of {}", node, nodes)));
}

using InnerOuter = Result<collective::StepPeers> (*)(int, int, int, std::uint64_t);

void define_dynamic(py::module_& module) {
  module.def("one_peer", [](const Graph& graph, int node, std::uint64_t step) {
    check_node(node, graph.nodes());
    return pair_of(collective::one_peer(graph, node, step));
  });
  module.def("one_peer_exponential", [](int nodes, int node, std::uint64_t step) {
    check_node(node, nodes);
    return pair_of(collective::one_peer_exponential(nodes, node, step));
  });
  const auto define = [&](const char* name, InnerOuter generate) {
    module.def(name, [generate](int nodes, int per_machine, int node, std::uint64_t step) {
      check_node(node, nodes);
      return pair_of(take(generate(nodes, per_machine, node, step)));
    });
  };
  define("inner_outer_ring", &collective::inner_outer_ring);
  define("inner_outer_exponential", &collective::inner_outer_exponential);
}

}  // namespace

void define_graph(py::module_& module) {
  py::class_<Graph>(module, "Graph")
      .def_static("make",
                  [](const std::string& spec, int nodes) {
                    return std::make_unique<Graph>(take(collective::make_graph(spec, nodes)));
                  })
      .def_static("from_edges", &from_edges)
      .def_property_readonly("nodes", &Graph::nodes)
      .def_property_readonly("spec", &Graph::spec)
      .def("edges", &edges_of)
      .def("edge_count", &Graph::edges)
      .def("has_edge",
           [](const Graph& graph, int from, int to) {
             (void)neighbors(graph, from, false);
             (void)neighbors(graph, to, false);
             return graph.has_edge(from, to);
           })
      .def("out_neighbors",
           [](const Graph& graph, int node) { return to_vector(neighbors(graph, node, false)); })
      .def("in_neighbors",
           [](const Graph& graph, int node) { return to_vector(neighbors(graph, node, true)); })
      .def("weights", &weights_of)
      .def("spectrum", &spectrum_of)
      .def("is_undirected", &collective::is_undirected)
      .def("is_strongly_connected", &collective::is_strongly_connected)
      .def("diameter", [](const Graph& graph) -> py::object {
        const auto found = collective::diameter(graph);
        return found ? py::object(py::make_tuple(found->lower, found->upper)) : py::none();
      });
  define_dynamic(module);
  module.def("graph_families", [] {
    std::vector<std::tuple<std::string, std::string, std::string>> families;
    for (auto& family : collective::graph_families())
      families.emplace_back(family.name, family.usage, family.help);
    return families;
  });
}

}  // namespace dunlin::python
