// What the applications' main() have in common.
#pragma once

#include <functional>
#include <string>

#include "transports/fabric.h"

namespace dunlin {

// Tells of a failure. The exit code: 2 where it is the user's to mend, else 1.
int fail(const Status& status);

// What an application does, on every rank. False: it ended without what it was asked to reach, and
// has told of it.
using JobBody = std::function<Result<bool>(transport::Fabric&)>;

// Joins the job that the environment describes and runs the body on its fabric; writes the trace,
// where one is asked for. `transport`, unless it is empty, takes the place of DUNLIN_TRANSPORTS.
// The exit code: 0 for true, 3 for false, of an error what fail() says.
int run_job(const std::string& transport, const JobBody& body);

}  // namespace dunlin
