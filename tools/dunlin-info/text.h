// Prints dunlin-info's report for people.
#pragma once

#include <string>

#include "tools/dunlin-info/report.h"

namespace dunlin::tools {

// Sections with indented "name  value" lines; sizes in units, lists of objects one per line.
std::string to_text(const Json& report);

// What tuning_report() says.
std::string tuning_text(const Json& report);

// The configuration: NAME=value, where it comes from, and what it means.
std::string config_text(const Json& config);

}  // namespace dunlin::tools
