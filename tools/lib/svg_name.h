// Names of files that programs write.
#pragma once

#include <string_view>

#include "runtime/status.h"

namespace dunlin::tools {

// kInvalidArgument unless the name ends in ".svg": viewers go by the name, and would reject SVG in
// a file that is called .png.
Status check_svg_name(std::string_view path);

}  // namespace dunlin::tools
