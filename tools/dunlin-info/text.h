// Turns dunlin-info's report into text for people.
#pragma once

#include <string>

#include "tools/dunlin-info/report.h"

namespace dunlin::tools {

// Sections of indented "name  value" lines. Sizes have units; each object of a list is one line.
std::string to_text(const Json& report);

// The content of tuning_report().
std::string tuning_text(const Json& report);

// The configuration: NAME=value, whether it is set, and what it means.
std::string config_text(const Json& config);

}  // namespace dunlin::tools
