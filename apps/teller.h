// Teller: what one rank tells of a run: JSON lines for programs, and text for people on standard
// output. The other ranks' say nothing. The programs' Outputs derive from it. Owner thread only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "apps/json_lines.h"

namespace dunlin {

class Teller {
 public:
  // `is_teller`: this is the rank that tells. `json`, `is_continued`: as JsonLines::open(); where
  // JSON goes to standard output, it goes there alone.
  Status open(bool is_teller, const std::string& json, bool is_quiet, bool is_continued = false);

  bool is_teller() const { return is_teller_; }
  // A line with "event" in front.
  Status event(const char* event, const nlohmann::ordered_json& fields);
  // A line of text for people.
  Status say(const std::string& line);

 private:
  bool is_teller_ = false;
  bool is_talkative_ = false;
  JsonLines lines_;
};

}  // namespace dunlin
