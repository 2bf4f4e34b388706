// Teller: what one rank reports of a run: JSON lines for programs, and text for people on standard
// output. The tellers of the other ranks print nothing. The programs' Outputs derive from it.
// Owner thread only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "apps/json_lines.h"

namespace dunlin {

// The options --json, --json-out and --quiet, which all applications have (command_line.h).
struct TellerOptions {
  // Where the JSON lines go. "-" stands for standard output, which then has no text. Any other name
  // is that of a file. Without a name, there are no JSON lines.
  std::string json;
  bool is_quiet = false;
};

class Teller {
 public:
  // `is_teller`: this rank reports. `is_continued`: the JSON lines are appended to what the file
  // holds.
  Status open(bool is_teller, const TellerOptions& options, bool is_continued = false);

  bool is_teller() const { return is_teller_; }
  // Whether text is printed: neither --quiet nor --json was given, and this rank reports.
  bool is_talkative() const { return is_talkative_; }
  // Writes a JSON line with "event" in front.
  Status event(const char* event, const nlohmann::ordered_json& fields);
  // Prints a line of text.
  Status say(const std::string& line);

 private:
  bool is_teller_ = false;
  bool is_talkative_ = false;
  JsonLines lines_;
};

}  // namespace dunlin
