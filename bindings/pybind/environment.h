// The environment as Python keeps it; used by all extension modules of the package.
#pragma once

#include <pybind11/pybind11.h>

#include "runtime/config.h"

namespace dunlin::python {

// Python copies the environment when it starts, and hands its copy to some of the programs that it
// starts. Takes the job secret out of the copy if a job has taken it out of the environment itself.
// Call it with the GIL.
inline void hide_job_secret() {
  if (!Environment::hides_job_secret()) return;
  const auto variables = pybind11::module_::import("os").attr("environ");
  variables.attr("pop")("DUNLIN_JOB_SECRET", pybind11::none());
}

}  // namespace dunlin::python
