#include "apps/json_lines.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

namespace dunlin {

Result<JsonLines> JsonLines::adopt(std::string name, std::FILE* file) {
  if (file == nullptr) return Status::from_errno("opening " + name, errno);
  JsonLines lines;
  lines.name_ = std::move(name);
  lines.file_.reset(file);
  return lines;
}

Result<JsonLines> JsonLines::open(const std::string& path, bool is_continued) {
  return adopt(path, std::fopen(path.c_str(), is_continued ? "a" : "w"));
}

Result<JsonLines> JsonLines::standard_output() {
  return adopt("standard output", fdopen(dup(STDOUT_FILENO), "w"));
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
