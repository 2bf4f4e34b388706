#include "apps/teller.h"

#include "runtime/print.h"

namespace dunlin {

Status Teller::open(bool is_teller, const std::string& json, bool is_quiet, bool is_continued) {
  is_teller_ = is_teller;
  is_talkative_ = is_teller && !is_quiet && json != "-";
  if (!is_teller) return Status::ok();
  DUNLIN_ASSIGN(lines_, JsonLines::open(json, is_continued));
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
