// Small files that tests write and read whole.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace dunlin::testing {

// Empty when there is no such file.
inline std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Writes the file, replacing an existing one, and returns the path.
inline std::string written(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

}  // namespace dunlin::testing
