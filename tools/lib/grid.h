// A grid of ranks as it is written on the command line.
#pragma once

#include <string_view>

#include "collectives/schedule/team.h"
#include "runtime/status.h"

namespace dunlin::tools {

// ROWSxCOLUMNS, such as 4x8.
Result<collective::Grid> parse_grid(std::string_view text);

}  // namespace dunlin::tools
