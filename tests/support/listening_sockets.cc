#include "tests/support/listening_sockets.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace dunlin::testing {
namespace {

// The inodes of sockets that listen, of all processes in this network namespace.
std::set<std::string> listening_inodes() {
  std::set<std::string> found;
  for (const char* const table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // the titles
    while (std::getline(file, line)) {
      std::istringstream words(line);
      const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
      constexpr std::size_t kState = 3;
      constexpr std::size_t kInode = 9;
      if (fields.size() > kInode && fields[kState] == "0A") found.insert(fields[kInode]);
    }
  }
  return found;
}

}  // namespace

int count_listening_sockets() {
  const std::set<std::string> listening = listening_inodes();
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry, error).string();
    constexpr std::string_view kSocket = "socket:[";
    if (!target.starts_with(kSocket)) continue;
    count += static_cast<int>(
        listening.count(target.substr(kSocket.size(), target.size() - kSocket.size() - 1)));
  }
  return count;
}

}  // namespace dunlin::testing
