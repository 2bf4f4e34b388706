#include "runtime/bootstrap/printable.h"

#include <fmt/format.h>

#include <iterator>

namespace dunlin::bootstrap {

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char each : text) {
    if (each >= ' ' && each <= '~') {
      result += each;
    } else {
      fmt::format_to(std::back_inserter(result), "\\x{:02x}", static_cast<unsigned char>(each));
    }
  }
  return result;
}

}  // namespace dunlin::bootstrap
