// The commands of the program. Each runs on every rank of the job.
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

// Collective. False: the run diverged or missed --target-error, and rank 0 has said so on standard
// error.
Result<bool> run_descent(Setting& setting);
Result<bool> run_averaging(Setting& setting);
Result<bool> run_fish_school(Setting& setting);

// Whether the error of the worst rank is acceptable. If not, rank 0 says so.
bool judge(const Setting& setting, double error);

}  // namespace dunlin::consensus
