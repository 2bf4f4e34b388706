// The subcommands of dunlin-schedule. Each prints what it finds; a status is why it couldn't, or
// what isn't as it should be.
#pragma once

#include "tools/dunlin-schedule/options.h"

namespace dunlin::schedule {

Status list(const Words& words);
Status check(const Words& words);
Status cost(const Words& words);
Status draw(const Words& words);
// Figs. 3 and 4 of the 2D-TGA paper, and whether what it says of them holds.
Status figures(const Words& words);

}  // namespace dunlin::schedule
