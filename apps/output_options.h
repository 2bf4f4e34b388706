// The options for output that all applications have.
#pragma once

#include "apps/teller.h"

namespace CLI {
class App;
}

namespace dunlin {

// Adds --json, --json-out and --quiet.
void add_output_options(CLI::App& app, TellerOptions& options);

}  // namespace dunlin
