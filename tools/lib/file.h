// Files that programs write.
#pragma once

#include <string>
#include <string_view>

#include "runtime/status.h"

namespace dunlin::tools {

// Replaces what the file holds.
Status write_file(const std::string& path, std::string_view text);

// kInvalidArgument unless the name ends in ".svg": viewers go by the name, and would reject SVG in
// a file that is called .png.
Status check_svg_name(std::string_view path);

}  // namespace dunlin::tools
