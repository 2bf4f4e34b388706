// Output: prints the figures of a program as text and as JSON lines.
#pragma once

#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/status.h"

namespace dunlin::tools {

class Output {
 public:
  // `json_target` is what add_json_options() made of the command line: "-" for JSON lines on
  // standard output instead of text, a file for JSON lines beside the text, or empty for no JSON.
  static Result<std::unique_ptr<Output>> open(const std::string& json_target);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  bool prints_text() const { return json_ != stdout; }
  // Prints the text, and a line feed if it lacks one at its end.
  Status text(const std::string& text) const;
  // Writes one line.
  Status json(const nlohmann::ordered_json& line) const;
  // Writes one line: an object with the members of both.
  Status json(const nlohmann::ordered_json& context, const nlohmann::ordered_json& row) const;

 private:
  Output() = default;
  std::FILE* json_ = nullptr;
};

}  // namespace dunlin::tools
