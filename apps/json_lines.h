// JsonLines: what a program tells of its run for other programs: a file of one JSON object a line.
// Owner thread only.
#pragma once

#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/status.h"

namespace dunlin {

class JsonLines {
 public:
  // Nothing is written without a name.
  JsonLines() = default;
  // "-": standard output. `is_continued`: behind what the file holds.
  static Result<JsonLines> open(const std::string& name, bool is_continued = false);

  // Written when it returns. NaN and infinity become null, what isn't UTF-8 (in a file's name, say)
  // a replacement character.
  Status write(const nlohmann::ordered_json& line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string name_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace dunlin
