#pragma once

#include "collectives/graph/mixing.h"

#include "collectives/graph/spectral.h"
#include "collectives/stochastic/neighborhood.h"

namespace dunlin {

using collective::mixing_rounds;
using collective::MixingMatrix;
using collective::Neighborhood;
using collective::neighborhood_of;
using collective::NodeWeights;
using collective::parse_weighting;
using collective::SpectralMethod;
using collective::SpectralOptions;
using collective::spectrum;
using collective::Spectrum;
using collective::Weighting;

}  // namespace dunlin
