#include "apps/json_lines.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

namespace dunlin {

Result<JsonLines> JsonLines::open(const std::string& name, bool is_continued) {
  JsonLines lines;
  if (name.empty()) return lines;
  lines.name_ = name;
  lines.file_.reset(name == "-" ? fdopen(dup(STDOUT_FILENO), "w")
                                : std::fopen(name.c_str(), is_continued ? "a" : "w"));
  if (!lines.file_) return Status::from_errno("opening " + name, errno);
  return lines;
}

Status JsonLines::write(const nlohmann::ordered_json& line) {
  if (!file_) return Status::ok();
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (std::fputs(text.c_str(), file_.get()) == EOF || std::fflush(file_.get()) != 0) {
    return Status::from_errno("writing " + name_, errno);
  }
  return Status::ok();
}

}  // namespace dunlin
