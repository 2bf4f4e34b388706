// Precompiled for the programs: the library's, and JSON. CLI11 stays out: its global objects make
// the compiler generate most of it in every source that sees it, which takes 5 s per source.
#include <nlohmann/json.hpp>

#include "runtime/pch/library.h"
