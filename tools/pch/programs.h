// Precompiled for the programs: the library's, and the command line and JSON.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "runtime/pch/library.h"
