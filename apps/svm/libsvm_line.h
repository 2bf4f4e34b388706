// The grammar of one line of a LIBSVM file:
//
//   line     = [row] [comment]        blank and comment lines hold no row
//   row      = label { index ":" value }
//   comment  = "#" anything
//
// separated by blanks and tabs. Labels and values are finite decimal numbers, with an optional
// sign; indices count from 1 and ascend. Stateless; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dunlin::svm {

// Takes the next line off `text` and returns it without its line end, "\n" or "\r\n". The last line
// may lack it.
std::string_view next_line(std::string_view& text);

// Whether a line holds a row. It is cheap, since it only reads up to the first word.
bool holds_row(std::string_view line);

struct LineError {
  std::size_t column = 0;  // from 1, in bytes
  std::string text;
};

// What parse_row() appends to. `limit` is the number of features. Values beyond it are an error, or
// are counted and left out if `drop_beyond` is set.
struct RowSink {
  std::vector<std::uint32_t>& indices;
  std::vector<float>& values;
  std::uint32_t limit = UINT32_MAX;
  bool drop_beyond = false;
  std::uint32_t features = 0;  // largest index seen, counted from 1
  std::uint64_t dropped_values = 0;
};

// Parses a line that holds a row. On failure the vectors of the sink may hold part of the row.
std::optional<LineError> parse_row(std::string_view line, float& label, RowSink& sink);

}  // namespace dunlin::svm
