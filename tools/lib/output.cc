#include "tools/lib/output.h"

#include <nlohmann/json.hpp>

#include "runtime/print.h"

namespace dunlin::tools {

Result<std::unique_ptr<Output>> Output::open(const std::string& json_target) {
  const bool is_standard = json_target == "-";
  OutputStream json;
  if (is_standard) {
    DUNLIN_ASSIGN(json, OutputStream::standard_output());
  } else if (!json_target.empty()) {
    DUNLIN_ASSIGN(json, OutputStream::open(json_target, OutputStream::Start::kEmpty));
  }
  return std::unique_ptr<Output>(new Output(std::move(json), !is_standard));
}

Status Output::text(const std::string& text) const {
  if (!prints_text()) return Status::ok();
  return print(text.ends_with('\n') ? text : text + "\n");
}

Status Output::json(const nlohmann::ordered_json& line) const {
  return json_.is_open() ? json_.write(line.dump() + "\n") : Status::ok();
}

Status Output::json(const nlohmann::ordered_json& context,
                    const nlohmann::ordered_json& row) const {
  nlohmann::ordered_json line = context;
  line.update(row);
  return json(line);
}

}  // namespace dunlin::tools
