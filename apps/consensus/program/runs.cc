#include "apps/consensus/program/runs.h"

#include <fmt/format.h>

#include "runtime/print.h"

namespace dunlin::consensus {
namespace {

// Every method begins at 0, with a relative error of 1. A run that ends further away than this has
// diverged.
constexpr double kDiverged = 10;

}  // namespace

bool judge(const Setting& setting, double error) {
  const Options& options = setting.options;
  std::string complaint;
  if (!(error < kDiverged)) {
    complaint = fmt::format("the run diverged, to an error of {:.3e}", error);
    if (options.command == Command::kDescent) complaint += "; try a smaller --step";
  } else if (options.target_error && error > *options.target_error) {
    complaint =
        fmt::format("the error is {:.3e}, and did not reach {:g}", error, *options.target_error);
  }
  if (complaint.empty()) return true;
  if (setting.output.is_teller()) print_error("dunlin-consensus: " + complaint + "\n");
  return false;
}

}  // namespace dunlin::consensus
