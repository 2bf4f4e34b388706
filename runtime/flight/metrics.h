// The content of flight records as metrics, in Prometheus' text format (version 0.0.4). Any thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/flight/reader.h"

namespace dunlin::flight {

std::string metrics_of(const std::vector<Snapshot>& ranks);
// The same of the records in these files. Files that cannot be read are left out.
std::string metrics_of_files(const std::vector<std::string>& paths);

}  // namespace dunlin::flight
