// JsonLines: a stream of JSON objects, one per line, through which a program reports its run to
// other programs. Owner thread only.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/files/output_stream.h"
#include "runtime/status.h"

namespace dunlin {

class JsonLines {
 public:
  // A stream that drops what is written to it.
  JsonLines() = default;
  // `is_continued`: appends to what the file holds; otherwise its content is removed.
  static Result<JsonLines> open(const std::string& path, bool is_continued = false);
  static Result<JsonLines> standard_output();

  // The line has reached the file when this returns. NaN and infinity become null. Bytes that are
  // not UTF-8 (in a file's name, for example) become a replacement character.
  Status write(const nlohmann::ordered_json& line);

 private:
  explicit JsonLines(OutputStream stream) : stream_(std::move(stream)) {}

  OutputStream stream_;
};

}  // namespace dunlin
