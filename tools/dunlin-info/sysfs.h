// Small reads from /proc and /sys.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace dunlin::tools {

// The first line; nothing when the file isn't there or is empty.
std::optional<std::string> first_line(const std::string& path);

std::optional<long> first_number(const std::string& path);

// "NAME: 123 kB" of /proc/meminfo, in bytes; for counts ("HugePages_Total") the number itself.
std::optional<std::size_t> meminfo(const std::string& name);

}  // namespace dunlin::tools
