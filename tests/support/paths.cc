#include "tests/support/paths.h"

#include <cstdlib>
#include <filesystem>

namespace dunlin::testing {

std::string built(const std::string& path) {
  auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  while (folder != folder.root_path() && !std::filesystem::exists(folder / "build.ninja")) {
    folder = folder.parent_path();
  }
  return (folder / path).string();
}

std::string program(const std::string& name) {
  return built("tools/" + name + "/" + name);
}

std::string data_set(const std::string& name) {
  const char* const folder = std::getenv("TEST_DATA_DIRECTORY");
  return (std::filesystem::path(folder == nullptr ? "no TEST_DATA_DIRECTORY" : folder) / name)
      .string();
}

}  // namespace dunlin::testing
