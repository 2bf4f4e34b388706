#include "tools/lib/svg_name.h"

#include <fmt/format.h>

namespace dunlin::tools {

Status check_svg_name(std::string_view path) {
  if (path.ends_with(".svg")) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("--svg {}: the picture is SVG, so its name must end in .svg", path)};
}

}  // namespace dunlin::tools
