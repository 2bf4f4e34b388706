// Reads from /proc and /sys.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace dunlin::tools {

// Returns the first line; nothing when the file is empty or does not exist.
std::optional<std::string> first_line(const std::string& path);

std::optional<long> first_number(const std::string& path);

// Returns the value of "NAME: 123 kB" in /proc/meminfo, in bytes, or the number of a count
// ("HugePages_Total").
std::optional<std::size_t> meminfo(const std::string& name);

}  // namespace dunlin::tools
