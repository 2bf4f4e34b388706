#include "apps/logreg/program/output.h"

#include <fmt/format.h>

namespace dunlin::logreg {
namespace {

// True for 1 to 10, every tenth up to 100, every hundredth up to 1000, ...
bool is_in_table(int iteration) {
  int every = 1;
  while (iteration / every >= 10) every *= 10;
  return iteration % every == 0;
}

}  // namespace

Json optional(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

Result<Output> Output::open(const Options& options, bool is_teller) {
  Output output;
  DUNLIN_TRY(output.Teller::open(is_teller, options.output));
  return output;
}

Status Output::progress(const Moment& moment, bool is_last) {
  const auto& [primal, dual, primal_bound, dual_bound] = moment.residuals;
  DUNLIN_TRY(event("progress", {{"iteration", moment.iteration},
                                {"time_s", moment.time_s},
                                {"objective", moment.objective},
                                {"relative_error", optional(moment.relative_error)},
                                {"primal_residual", primal},
                                {"dual_residual", dual},
                                {"primal_bound", primal_bound},
                                {"dual_bound", dual_bound},
                                {"rho", moment.rho},
                                {"newton_iterations", moment.tron.iterations},
                                {"hessian_products", moment.tron.products},
                                {"compute_s", moment.times.compute},
                                {"sync_s", moment.times.sync},
                                {"sync_least_s", moment.times.sync_least}}));
  if (!is_last && !is_in_table(moment.iteration)) return Status::ok();
  if (!has_heading_) {
    DUNLIN_TRY(say(fmt::format("{:>9}  {:>15}  {:>9}  {:>9}  {:>9}  {:>8}  {:>10}  {:>9}",
                               "iteration", "objective", "rel.error", "primal", "dual", "rho",
                               "compute ms", "sync ms")));
    has_heading_ = true;
  }
  return say(
      fmt::format("{:>9}  {:>15.9g}  {:>9}  {:>9.2e}  {:>9.2e}  {:>8.3g}  {:>10.3f}  {:>9.3f}",
                  moment.iteration, moment.objective,
                  moment.relative_error ? fmt::format("{:.2e}", *moment.relative_error) : "-",
                  primal, dual, moment.rho, 1e3 * moment.times.compute, 1e3 * moment.times.sync));
}

}  // namespace dunlin::logreg
