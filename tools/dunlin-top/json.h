// Turns a JobView into JSON. Stateless.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/flight/job_view.h"

namespace dunlin::top {

// {"job", "host", "program", "size", "ranks": [...], "stragglers": [...]}. Times are in seconds.
nlohmann::ordered_json to_json(const flight::JobView& job);

}  // namespace dunlin::top
