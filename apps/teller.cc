#include "apps/teller.h"

#include "runtime/print.h"

namespace dunlin {

Status Teller::open(bool is_teller, const TellerOptions& options, bool is_continued) {
  is_teller_ = is_teller;
  const bool prints_json = options.json == "-";
  is_talkative_ = is_teller && !options.is_quiet && !prints_json;
  if (!is_teller || options.json.empty()) return Status::ok();
  DUNLIN_ASSIGN(lines_, prints_json ? JsonLines::standard_output()
                                    : JsonLines::open(options.json, is_continued));
  return Status::ok();
}

Status Teller::event(const char* event, const nlohmann::ordered_json& fields) {
  nlohmann::ordered_json line = {{"event", event}};
  line.update(fields);
  return lines_.write(line);
}

Status Teller::say(const std::string& line) {
  return is_talkative_ ? print(line + "\n") : Status::ok();
}

}  // namespace dunlin
