// What the program's commands do, each on every rank of the job.
#pragma once

#include "apps/consensus/program/job.h"
#include "apps/consensus/program/options.h"
#include "apps/consensus/program/output.h"

namespace dunlin::consensus {

struct Setting {
  transport::Fabric& fabric;
  collective::Communicator& communicator;
  const Options& options;
  Output& output;
};

// Collective. False: the run diverged or missed --target-error; rank 0 has said so on standard
// error.
Result<bool> run_descent(Setting& setting);
Result<bool> run_averaging(Setting& setting);
Result<bool> run_fish_school(Setting& setting);

// Whether the worst rank's error will do; tells, on rank 0, if not.
bool judge(const Setting& setting, double error);

}  // namespace dunlin::consensus
