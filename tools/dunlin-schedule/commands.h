// The subcommands of dunlin-schedule. Each prints its results. An error says why there are none, or
// which schedule is wrong.
#pragma once

#include "tools/dunlin-schedule/options.h"

namespace dunlin::schedule {

Status list(const Words& words);
Status check(const Words& words);
Status cost(const Words& words);
Status draw(const Words& words);
// Prints figures 3 and 4 of the 2D-TGA paper, and whether what the paper says of them holds here.
Status figures(const Words& words);

}  // namespace dunlin::schedule
