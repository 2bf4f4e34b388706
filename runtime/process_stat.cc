#include "runtime/process_stat.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <string_view>

namespace dunlin {

std::string process_stat(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  // read() takes the error of a process that ends meanwhile for the end of the file; an iterator
  // over the buffer would throw.
  std::array<char, 1024> buffer;
  file.read(buffer.data(), buffer.size());
  const std::string_view text(buffer.data(), static_cast<std::size_t>(file.gcount()));
  const auto name_end = text.rfind(") ");
  return name_end == std::string_view::npos ? "" : std::string(text.substr(name_end + 2));
}

}  // namespace dunlin
