#include "apps/json_lines.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace dunlin {

Result<JsonLines> JsonLines::open(const std::string& path, bool is_continued) {
  using enum OutputStream::Start;
  DUNLIN_ASSIGN(OutputStream stream, OutputStream::open(path, is_continued ? kAppend : kEmpty));
  return JsonLines(std::move(stream));
}

Result<JsonLines> JsonLines::standard_output() {
  DUNLIN_ASSIGN(OutputStream stream, OutputStream::standard_output());
  return JsonLines(std::move(stream));
}

Status JsonLines::write(const nlohmann::ordered_json& line) {
  if (!stream_.is_open()) return Status::ok();
  return stream_.write(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                       "\n");
}

}  // namespace dunlin
