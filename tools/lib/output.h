// Output: where a program's figures go, as text and as JSON lines.
#pragma once

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/status.h"

namespace dunlin::tools {

// `--json FILE`: JSON lines go there; the text is printed unless that is standard output.
class Output {
 public:
  // `json_path`: empty: none, "-": standard output.
  static Result<std::unique_ptr<Output>> open(const std::string& json_path);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  bool prints_text() const { return json_ != stdout; }
  Status text(const std::string& text) const;
  // One line, of both together.
  Status json(const nlohmann::ordered_json& context, const nlohmann::ordered_json& row) const;

 private:
  Output() = default;
  std::FILE* json_ = nullptr;
};

}  // namespace dunlin::tools
