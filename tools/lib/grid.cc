#include "tools/lib/grid.h"

#include "runtime/units.h"

namespace dunlin::tools {

Result<collective::Grid> parse_grid(std::string_view text) {
  constexpr int kMost = 1 << 15;
  std::string_view rest = text;
  const auto rows = take_number<int>(rest);
  if (rows && rest.starts_with('x')) {
    rest.remove_prefix(1);
    const auto columns = take_number<int>(rest);
    const auto suits = [](std::optional<int> n) { return n && *n >= 1 && *n <= kMost; };
    if (suits(rows) && suits(columns) && rest.empty()) return collective::Grid{*rows, *columns};
  }
  return not_right(text, "a grid of ROWSxCOLUMNS, such as 4x8");
}

}  // namespace dunlin::tools
