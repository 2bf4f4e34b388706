#include "apps/svm/libsvm_line.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace dunlin::svm {
namespace {

constexpr bool is_blank(char c) {
  return c == ' ' || c == '\t';
}
constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

const char* skip_blanks(const char* at, const char* end) {
  while (at != end && is_blank(*at)) ++at;
  return at;
}

bool is_at_end(const char* at, const char* end) {
  return at == end || *at == '#';
}

// The word at `at` for a message: shortened, and without control characters.
std::string quoted(const char* at, const char* end) {
  constexpr std::ptrdiff_t kLongest = 24;
  std::string text = "'";
  const char* from = at;
  for (; at != end && !is_blank(*at) && at - from < kLongest; ++at) {
    const bool is_printable = *at >= 0x20 && *at < 0x7F;
    text += is_printable ? std::string(1, *at)
                         : fmt::format("\\x{:02x}", static_cast<unsigned char>(*at));
  }
  return text + (at - from == kLongest ? "...'" : "'");
}

// Parses a decimal number at `at`, and moves `at` behind it. Returns the problem, or nullptr.
// Numbers that are too small for a float become zero.
const char* parse_number(const char*& at, const char* end, float& value) {
  const char* from = at;
  if (from != end && *from == '+') {
    ++from;
    if (from != end && *from == '-') return "is not a number";
  }
  const auto [after, error] = std::from_chars(from, end, value);
  if (error == std::errc::invalid_argument) return "is not a number";
  if (error == std::errc::result_out_of_range) {
    value = std::strtof(std::string(from, after).c_str(), nullptr);
  }
  if (!std::isfinite(value)) {
    const char* first = *from == '-' ? from + 1 : from;
    return is_digit(*first) || *first == '.' ? "is too large for a float" : "is not finite";
  }
  at = after;
  return nullptr;
}

class RowParser {
 public:
  RowParser(std::string_view line, RowSink& sink)
      : begin_(line.data()), at_(begin_), end_(begin_ + line.size()), sink_(sink) {}

  std::optional<LineError> parse(float& label) {
    at_ = skip_blanks(at_, end_);
    const char* from = at_;
    if (const char* problem = parse_number(at_, end_, label)) {
      return error(from, fmt::format("label {} {}", quoted(from, end_), problem));
    }
    if (!is_delimited()) {
      return error(at_, fmt::format("unexpected {} after the label", quoted(at_, end_)));
    }
    std::uint32_t previous = 0;
    for (at_ = skip_blanks(at_, end_); !is_at_end(at_, end_); at_ = skip_blanks(at_, end_)) {
      if (auto problem = parse_feature(previous)) return problem;
    }
    sink_.features = std::max(sink_.features, previous);
    return std::nullopt;
  }

 private:
  // Parses "index:value". `previous` is the index before it, and becomes this one.
  std::optional<LineError> parse_feature(std::uint32_t& previous) {
    const char* index_at = at_;
    std::uint32_t index = 0;
    if (auto problem = parse_index(index)) return problem;
    if (index <= previous) {
      return error(index_at, index == 0 ? std::string("index 0: indices count from 1")
                                        : fmt::format("index {} after {}: indices must ascend",
                                                      index, previous));
    }
    const char* value_at = at_;
    float value = 0;
    if (const char* problem = parse_number(at_, end_, value)) {
      return error(value_at, fmt::format("value {} {}", quoted(value_at, end_), problem));
    }
    if (!is_delimited()) {
      return error(at_, fmt::format("unexpected {} after the value", quoted(at_, end_)));
    }
    previous = index;
    if (index > sink_.limit) return beyond_limit(index_at, index);
    sink_.indices.push_back(index - 1);
    sink_.values.push_back(value);
    return std::nullopt;
  }

  // Parses the index and its colon.
  std::optional<LineError> parse_index(std::uint32_t& index) {
    const char* from = at_;
    const auto [after, code] = std::from_chars(at_, end_, index);
    if (code == std::errc::result_out_of_range) {
      return error(from, fmt::format("index {} does not fit into 32 bits", quoted(from, after)));
    }
    if (code != std::errc{}) {
      return error(from, fmt::format("index {} is not a whole number", quoted(from, end_)));
    }
    if (after == end_ || *after != ':') {
      return error(after, fmt::format("expected ':' after index {}", index));
    }
    at_ = after + 1;
    return std::nullopt;
  }

  std::optional<LineError> beyond_limit(const char* index_at, std::uint32_t index) {
    if (!sink_.drop_beyond) {
      return error(index_at, fmt::format("index {} is beyond the {} features", index, sink_.limit));
    }
    ++sink_.dropped_values;
    return std::nullopt;
  }

  bool is_delimited() const { return is_at_end(at_, end_) || is_blank(*at_); }

  LineError error(const char* at, std::string text) const {
    return {static_cast<std::size_t>(at - begin_) + 1, std::move(text)};
  }

  const char* begin_;
  const char* at_;
  const char* end_;
  RowSink& sink_;
};

}  // namespace

std::string_view next_line(std::string_view& text) {
  const void* found = text.empty() ? nullptr : std::memchr(text.data(), '\n', text.size());
  const std::size_t length =
      found != nullptr ? static_cast<const char*>(found) - text.data() : text.size();
  std::string_view line = text.substr(0, length);
  text.remove_prefix(found != nullptr ? length + 1 : length);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool holds_row(std::string_view line) {
  const char* end = line.data() + line.size();
  return !is_at_end(skip_blanks(line.data(), end), end);
}

std::optional<LineError> parse_row(std::string_view line, float& label, RowSink& sink) {
  return RowParser(line, sink).parse(label);
}

}  // namespace dunlin::svm
