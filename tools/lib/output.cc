#include "tools/lib/output.h"

#include <cerrno>
#include <nlohmann/json.hpp>

#include "runtime/print.h"

namespace dunlin::tools {

Result<std::unique_ptr<Output>> Output::open(const std::string& json_target) {
  std::unique_ptr<Output> output(new Output());
  if (json_target.empty()) return output;
  output->json_ = json_target == "-" ? stdout : std::fopen(json_target.c_str(), "w");
  if (output->json_ == nullptr) return Status::from_errno("open " + json_target, errno);
  return output;
}

Output::~Output() {
  if (json_ != nullptr && json_ != stdout) std::fclose(json_);
}

Status Output::text(const std::string& text) const {
  if (!prints_text()) return Status::ok();
  return print(text.ends_with('\n') ? text : text + "\n");
}

Status Output::json(const nlohmann::ordered_json& line) const {
  return json_ == nullptr ? Status::ok() : print(line.dump() + "\n", json_);
}

Status Output::json(const nlohmann::ordered_json& context,
                    const nlohmann::ordered_json& row) const {
  nlohmann::ordered_json line = context;
  line.update(row);
  return json(line);
}

}  // namespace dunlin::tools
