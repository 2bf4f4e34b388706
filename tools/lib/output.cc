#include "tools/lib/output.h"

#include <cerrno>

#include "runtime/print.h"

namespace dunlin::tools {

Result<std::unique_ptr<Output>> Output::open(const std::string& json_path) {
  std::unique_ptr<Output> output(new Output());
  if (json_path.empty()) return output;
  output->json_ = json_path == "-" ? stdout : std::fopen(json_path.c_str(), "w");
  if (output->json_ == nullptr) return Status::from_errno("open " + json_path, errno);
  return output;
}

Output::~Output() {
  if (json_ != nullptr && json_ != stdout) std::fclose(json_);
}

Status Output::text(const std::string& text) const {
  return prints_text() ? print(text + "\n") : Status::ok();
}

Status Output::json(const nlohmann::ordered_json& context,
                    const nlohmann::ordered_json& row) const {
  if (json_ == nullptr) return Status::ok();
  nlohmann::ordered_json line = context;
  line.update(row);
  return print(line.dump() + "\n", json_);
}

}  // namespace dunlin::tools
