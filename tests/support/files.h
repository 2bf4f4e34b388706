// Small files that tests write and read whole.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace dunlin::testing {

// Empty where there is none.
inline std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Writes the file, in place of one that is there; the path again.
inline std::string written(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

}  // namespace dunlin::testing
