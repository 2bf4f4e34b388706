#include "apps/output_options.h"

#include "apps/command_line/command_line.h"

namespace dunlin {

void add_output_options(CLI::App& app, TellerOptions& options) {
  add_json_options(app, options.json);
  app.add_flag("--quiet", options.is_quiet, "print no text");
}

}  // namespace dunlin
