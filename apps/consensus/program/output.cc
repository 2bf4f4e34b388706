#include "apps/consensus/program/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/print.h"

namespace dunlin::consensus {

Result<Output> Output::open(const Options& options, bool is_teller) {
  Output output;
  output.name_ = options.json;
  output.is_teller_ = is_teller;
  // Where JSON goes to standard output, it goes there alone.
  output.is_quiet_ = options.is_quiet || options.json == "-";
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
  return is_teller_ && !is_quiet_ ? print(line + "\n") : Status::ok();
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
