// Output: prints the figures of a program as text and as JSON lines.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/files/output_stream.h"
#include "runtime/status.h"

namespace dunlin::tools {

class Output {
 public:
  // `json_target` is what add_json_options() made of the command line: "-" for JSON lines on
  // standard output instead of text, a file for JSON lines beside the text, or empty for no JSON.
  static Result<std::unique_ptr<Output>> open(const std::string& json_target);
  bool prints_text() const { return prints_text_; }
  // Prints the text, and a line feed if it lacks one at its end.
  Status text(const std::string& text) const;
  // Writes one line. It has reached the file when this returns.
  Status json(const nlohmann::ordered_json& line) const;
  // Writes one line: an object with the members of both.
  Status json(const nlohmann::ordered_json& context, const nlohmann::ordered_json& row) const;

 private:
  Output(OutputStream json, bool prints_text) : json_(std::move(json)), prints_text_(prints_text) {}

  OutputStream json_;
  bool prints_text_;
};

}  // namespace dunlin::tools
