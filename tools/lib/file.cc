#include "tools/lib/file.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>

namespace dunlin::tools {

Status write_file(const std::string& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path);
  if (!file) return Status::from_errno("create " + path, errno);
  file << text;
  file.close();
  return file ? Status::ok() : Status::from_errno("write " + path, errno == 0 ? EIO : errno);
}

Status check_svg_name(std::string_view path) {
  if (path.ends_with(".svg")) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("--svg {}: the picture is SVG, so its name must end in .svg", path)};
}

}  // namespace dunlin::tools
