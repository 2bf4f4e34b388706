// JsonLines: a stream of JSON objects, one per line, through which a program reports its run to
// other programs. Owner thread only.
#pragma once

#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/status.h"

namespace dunlin {

class JsonLines {
 public:
  // A stream that drops what is written to it.
  JsonLines() = default;
  // `is_continued`: appends to what the file holds; otherwise its content is replaced.
  static Result<JsonLines> open(const std::string& path, bool is_continued = false);
  static Result<JsonLines> standard_output();

  // The line has reached the file when this returns. NaN and infinity become null. Bytes that are
  // not UTF-8 (in a file's name, for example) become a replacement character.
  Status write(const nlohmann::ordered_json& line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  static Result<JsonLines> adopt(std::string name, std::FILE* file);

  std::string name_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace dunlin
