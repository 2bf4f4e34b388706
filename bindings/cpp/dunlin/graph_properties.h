#pragma once

#include "collectives/graph/properties.h"

#include "collectives/graph/dynamic.h"
#include "collectives/graph/rebuild.h"

namespace dunlin {

using collective::circulant_shifts;
using collective::degree_range;
using collective::DegreeRange;
using collective::diameter;
using collective::Diameter;
using collective::inner_outer_exponential;
using collective::inner_outer_ring;
using collective::is_strongly_connected;
using collective::is_undirected;
using collective::one_peer;
using collective::one_peer_exponential;
using collective::rebuild_graph;
using collective::regular_degree;
using collective::StepPeers;

}  // namespace dunlin
