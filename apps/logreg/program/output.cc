#include "apps/logreg/program/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/print.h"

namespace dunlin::logreg {
namespace {

// 1 to 10, every tenth up to 100, every hundredth up to 1000, ...
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
  output.name_ = options.json;
  // Where JSON goes to standard output, it goes there alone.
  output.is_talkative_ = is_teller && !options.is_quiet && options.json != "-";
  if (!is_teller || options.json.empty()) return output;
  output.file_.reset(options.json == "-" ? fdopen(dup(STDOUT_FILENO), "w")
                                         : std::fopen(options.json.c_str(), "w"));
  if (!output.file_) return Status::from_errno("opening " + options.json, errno);
  return output;
}

Status Output::event(const char* event, const Json& fields) {
  if (!file_) return Status::ok();
  Json line = {{"event", event}};
  line.update(fields);
  // A file's name need not be UTF-8.
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (std::fputs(text.c_str(), file_.get()) == EOF || std::fflush(file_.get()) != 0) {
    return Status::from_errno("writing " + name_, errno);
  }
  return Status::ok();
}

Status Output::say(const std::string& line) {
  return is_talkative_ ? print(line + "\n") : Status::ok();
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
