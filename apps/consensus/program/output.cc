#include "apps/consensus/program/output.h"

#include <fmt/format.h>

namespace dunlin::consensus {

Result<Output> Output::open(const Options& options, bool is_teller) {
  Output output;
  DUNLIN_TRY(output.Teller::open(is_teller, options.output));
  return output;
}

Status Output::history(const std::vector<Moment>& history, const char* unit) {
  constexpr std::size_t kRows = 10;
  DUNLIN_TRY(say(fmt::format("{:>10}  {:>12}  {:>12}  {:>12}", unit, "worst error", "rms error",
                             "disagreement")));
  const std::size_t every = std::max<std::size_t>(1, history.size() / kRows);
  for (std::size_t i = 0; i < history.size(); ++i) {
    const Moment& moment = history[i];
    DUNLIN_TRY(event("progress", {{"iteration", moment.iteration},
                                  {"error_max", moment.error_max},
                                  {"error_rms", moment.error_rms},
                                  {"consensus_error", moment.consensus}}));
    if (i % every != 0 && i + 1 != history.size()) continue;
    DUNLIN_TRY(say(fmt::format("{:>10}  {:>12.3e}  {:>12.3e}  {:>12.3e}", moment.iteration,
                               moment.error_max, moment.error_rms, moment.consensus)));
  }
  return Status::ok();
}

}  // namespace dunlin::consensus
