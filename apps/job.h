// What the applications' main() have in common.
#pragma once

#include <functional>
#include <string>

#include "runtime/bootstrap/bootstrap.h"

namespace dunlin {

// Tells of a failure. The exit code: 2 where it is the user's to mend, else 1.
int fail(const Status& status);

struct JobBody {
  // The exit code is 0 for true and 3 for false; of an error, what `fail` says.
  std::function<Result<bool>(Bootstrap&, const Config&)> run;
  std::function<int(const Status&)> fail = dunlin::fail;
};
// Joins the job that the environment describes and runs the body; the exit code. `transport`,
// unless it is empty, takes the place of DUNLIN_TRANSPORTS.
int run_job(const std::string& transport, const JobBody& body);

}  // namespace dunlin
