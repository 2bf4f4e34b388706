#include "collectives/graph/generators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "collectives/graph/edge_list.h"
#include "collectives/graph/number.h"
#include "collectives/graph/random_regular.h"

namespace dunlin::collective {
namespace {

// The arguments of a generator: the whole spec, the text behind its first colon, and the number of
// nodes (0: the spec has to name it).
struct GraphRequest {
  std::string_view spec;
  std::string_view argument;
  int nodes;

  Status refuse(std::string_view why) const {
    return {Code::kInvalidArgument, fmt::format("graph '{}': {}", spec, why)};
  }
  // Reserves memory for `edges` edges. An error if the graph may not have that many.
  Result<std::vector<Edge>> reserve(std::size_t edges) const {
    if (edges > kMaxEdges) {
      return Status(Code::kResourceExhausted,
                    fmt::format("graph '{}': {} edges over {} nodes are more than the {} that are "
                                "supported",
                                spec, edges, nodes, kMaxEdges));
    }
    std::vector<Edge> result;
    result.reserve(edges);
    return result;
  }
  std::size_t count() const { return static_cast<std::size_t>(nodes); }
  Result<Graph> build(std::span<const Edge> edges) const {
    return Graph::from_edges(nodes, edges, std::string(spec));
  }
};

void add_both_ways(std::vector<Edge>& edges, int a, int b) {
  edges.push_back({a, b});
  edges.push_back({b, a});
}

// i -> i + s modulo the number of nodes, for each shift s.
Result<Graph> circulant(const GraphRequest& request, std::span<const int> shifts) {
  DUNLIN_ASSIGN(auto edges, request.reserve(request.count() * shifts.size()));
  for (int i = 0; i < request.nodes; ++i) {
    for (const int shift : shifts) {
      const auto to = (static_cast<std::int64_t>(i) + shift) % request.nodes;
      edges.push_back({i, static_cast<int>(to)});
    }
  }
  return request.build(edges);
}

Result<Graph> complete(const GraphRequest& request) {
  DUNLIN_ASSIGN(auto edges, request.reserve(request.count() * (request.count() - 1)));
  for (int i = 0; i < request.nodes; ++i) {
    for (int j = 0; j < request.nodes; ++j) {
      if (i != j) edges.push_back({i, j});
    }
  }
  return request.build(edges);
}

Result<Graph> star(const GraphRequest& request) {
  DUNLIN_ASSIGN(auto edges, request.reserve(2 * request.count()));
  for (int i = 1; i < request.nodes; ++i) add_both_ways(edges, 0, i);
  return request.build(edges);
}

Result<Graph> ring(const GraphRequest& request) {
  const int shifts[] = {1};
  return circulant(request, shifts);
}

Result<Graph> bidirectional_ring(const GraphRequest& request) {
  const int shifts[] = {1, request.nodes - 1};
  return circulant(request, shifts);
}

Result<Graph> chain(const GraphRequest& request) {
  DUNLIN_ASSIGN(auto edges, request.reserve(2 * request.count()));
  for (int i = 1; i < request.nodes; ++i) add_both_ways(edges, i - 1, i);
  return request.build(edges);
}

int floor_sqrt(int value) {
  // This is exact: a double holds every int, and sqrt rounds correctly.
  return static_cast<int>(std::sqrt(static_cast<double>(value)));
}

Result<Graph> root_expander(const GraphRequest& request) {
  const int shifts[] = {1, floor_sqrt(request.nodes)};
  return circulant(request, shifts);
}

Result<Graph> exponential(const GraphRequest& request) {
  std::vector<int> shifts;
  for (std::int64_t shift = 1; shift < request.nodes; shift *= 2) {
    shifts.push_back(static_cast<int>(shift));
  }
  return circulant(request, shifts);
}

Result<Graph> hypercube(const GraphRequest& request) {
  if (!std::has_single_bit(static_cast<unsigned>(request.nodes))) {
    return request.refuse(
        fmt::format("{} nodes; the number must be a power of two", request.nodes));
  }
  const int dimension = std::countr_zero(static_cast<unsigned>(request.nodes));
  DUNLIN_ASSIGN(auto edges, request.reserve(request.count() * static_cast<std::size_t>(dimension)));
  for (int i = 0; i < request.nodes; ++i) {
    for (int bit = 0; bit < dimension; ++bit) edges.push_back({i, i ^ (1 << bit)});
  }
  return request.build(edges);
}

// Returns the shape that the spec names, or the one that is nearest to a square.
Result<GridShape> grid_shape(const GraphRequest& request) {
  if (request.argument.empty()) {
    if (request.nodes == 0) return request.refuse("say the number of nodes or the shape");
    int rows = floor_sqrt(request.nodes);
    while (request.nodes % rows != 0) --rows;
    return GridShape{rows, request.nodes / rows};
  }
  const auto cross = std::min(request.argument.find('x'), request.argument.size());
  const int rows = parse_number<int>(request.argument.substr(0, cross)).value_or(0);
  const int columns =
      parse_number<int>(request.argument.substr(std::min(cross + 1, request.argument.size())))
          .value_or(0);
  if (rows < 1 || columns < 1) {
    return request.refuse(fmt::format("'{}' is not a shape such as 4x2", request.argument));
  }
  const std::int64_t cells = static_cast<std::int64_t>(rows) * columns;
  if (cells > kMaxNodes)
    return request.refuse(fmt::format("a shape of {} nodes is too large", cells));
  if (request.nodes != 0 && cells != request.nodes) {
    return request.refuse(
        fmt::format("the shape has {} nodes, but there are {}", cells, request.nodes));
  }
  return GridShape{rows, columns};
}

Result<Graph> grid(const GraphRequest& request, bool wraps) {
  DUNLIN_ASSIGN(const GridShape shape, grid_shape(request));
  const int nodes = shape.rows * shape.columns;
  DUNLIN_ASSIGN(auto edges, request.reserve(4 * static_cast<std::size_t>(nodes)));
  for (int row = 0; row < shape.rows; ++row) {
    for (int column = 0; column < shape.columns; ++column) {
      const int node = row * shape.columns + column;
      if (wraps || column + 1 < shape.columns) {
        add_both_ways(edges, node, row * shape.columns + (column + 1) % shape.columns);
      }
      if (wraps || row + 1 < shape.rows) {
        add_both_ways(edges, node, (row + 1) % shape.rows * shape.columns + column);
      }
    }
  }
  return Graph::from_edges(nodes, edges, std::string(request.spec), shape);
}

Result<Graph> mesh(const GraphRequest& request) {
  return grid(request, false);
}
Result<Graph> torus(const GraphRequest& request) {
  return grid(request, true);
}

Result<Graph> random_regular(const GraphRequest& request) {
  constexpr std::string_view kSeed = "seed=";
  const auto colon = request.argument.find(':');
  const auto degree = parse_number<int>(request.argument.substr(0, colon));
  if (!degree) {
    return request.refuse(
        "the degree is missing or not a number; write random-regular:DEGREE[:seed=N]");
  }
  std::uint64_t seed = 1;
  if (colon != std::string_view::npos) {
    const std::string_view option = request.argument.substr(colon + 1);
    const auto value = option.starts_with(kSeed)
                           ? parse_number<std::uint64_t>(option.substr(kSeed.size()))
                           : std::nullopt;
    if (!value) return request.refuse(fmt::format("'{}' is not seed=NUMBER", option));
    seed = *value;
  }
  DUNLIN_TRY(request.reserve(request.count() * static_cast<std::size_t>(*degree)).status());
  auto edges = random_regular_edges(request.nodes, *degree, seed);
  if (!edges)
    return std::move(edges).status().with_context(fmt::format("graph '{}'", request.spec));
  return request.build(*edges);
}

Result<Graph> from_file(const GraphRequest& request) {
  if (request.argument.empty()) return request.refuse("the path is missing; write file:PATH");
  DUNLIN_ASSIGN(const EdgeList list, read_edge_list(std::string(request.argument), request.nodes));
  return Graph::from_edges(list.nodes, list.edges, std::string(request.spec));
}

struct Family {
  std::string_view name;
  std::string_view argument;  // what may follow the name; "": nothing
  std::string_view help;
  Result<Graph> (*make)(const GraphRequest&);
  bool may_fix_nodes;  // the spec may name the number of nodes
};

constexpr Family kFamilies[] = {
    {"complete", "", "every node sends to every other one: all-reduce in one step", complete,
     false},
    {"star", "", "parameter server: node 0 exchanges with every other node", star, false},
    {"ring", "", "i -> i+1", ring, false},
    {"bidirectional-ring", "", "i <-> i+1", bidirectional_ring, false},
    {"chain", "", "a path: i <-> i+1 without the closing edge", chain, false},
    {"root-expander", "", "i -> i+1 and i -> i+floor(sqrt(N))", root_expander, false},
    {"exponential", "", "i -> i+2^k for every 2^k below N", exponential, false},
    {"mesh", "[:ROWSxCOLUMNS]", "2-D grid; without a shape the one nearest to a square", mesh,
     true},
    {"torus", "[:ROWSxCOLUMNS]", "2-D grid whose rows and columns are rings", torus, true},
    {"hypercube", "", "i <-> i with one bit flipped; N must be a power of two", hypercube, false},
    {"random-regular", ":DEGREE[:seed=N]",
     "random connected undirected graph; the seed is 1 unless "
     "given",
     random_regular, false},
    {"file", ":PATH",
     "edge list: a line 'from to' per edge, '#' starts a comment, 'nodes N' first "
     "if wanted",
     from_file, true},
};

Result<const Family*> family_of(std::string_view spec) {
  const std::string_view name = spec.substr(0, spec.find(':'));
  for (const Family& family : kFamilies) {
    if (family.name == name) return &family;
  }
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.name);
  return Status(Code::kInvalidArgument,
                fmt::format("unknown graph '{}'; known are {}", name, fmt::join(names, ", ")));
}

}  // namespace

Result<Graph> make_graph(std::string_view spec, int nodes) {
  DUNLIN_ASSIGN(const Family* family, family_of(spec));
  const auto colon = spec.find(':');
  const GraphRequest request{
      spec, colon == std::string_view::npos ? std::string_view{} : spec.substr(colon + 1), nodes};
  if (nodes < 0 || nodes > kMaxNodes || (nodes == 0 && !family->may_fix_nodes)) {
    return request.refuse(fmt::format("{} nodes are outside 1..{}", nodes, kMaxNodes));
  }
  if (family->argument.empty() && colon != std::string_view::npos) {
    return request.refuse(fmt::format("'{}' takes no argument", family->name));
  }
  return family->make(request);
}

std::vector<GraphFamily> graph_families() {
  std::vector<GraphFamily> result;
  for (const Family& family : kFamilies) {
    result.push_back({std::string(family.name), fmt::format("{}{}", family.name, family.argument),
                      std::string(family.help)});
  }
  return result;
}

}  // namespace dunlin::collective
