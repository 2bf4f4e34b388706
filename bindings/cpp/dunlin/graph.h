#pragma once

#include "collectives/graph/graph.h"

#include "collectives/graph/edge_list.h"
#include "collectives/graph/generators.h"

namespace dunlin {

using collective::Edge;
using collective::EdgeList;
using collective::Graph;
using collective::graph_families;
using collective::GraphFamily;
using collective::GridShape;
using collective::make_graph;
using collective::read_edge_list;
using collective::write_edge_list;

}  // namespace dunlin
