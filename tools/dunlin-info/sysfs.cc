#include "tools/dunlin-info/sysfs.h"

#include <fstream>
#include <sstream>

namespace dunlin::tools {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line.empty()) return std::nullopt;
  return line;
}

std::optional<long> first_number(const std::string& path) {
  std::ifstream file(path);
  long number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

std::optional<std::size_t> meminfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::string unit;
    std::size_t value = 0;
    words >> key >> value >> unit;
    if (key == name + ":") return unit == "kB" ? value * 1024 : value;
  }
  return std::nullopt;
}

}  // namespace dunlin::tools
