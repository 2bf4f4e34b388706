// The environment of a plugin. A plugin lives in somebody else's process, whose environment may be
// meant for another version of Dunlin.
#pragma once

#include "runtime/config.h"

namespace dunlin::plugin {

// The environment of this process without the DUNLIN_ variables that this version does not know,
// which are errors for Dunlin's own programs.
Environment environment();

}  // namespace dunlin::plugin
