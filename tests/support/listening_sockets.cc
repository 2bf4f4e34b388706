#include "tests/support/listening_sockets.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace dunlin::testing {
namespace {

// The inodes of sockets that listen, of all processes in this network namespace, and their
// addresses.
std::map<std::string, std::string> listening_inodes() {
  std::map<std::string, std::string> found;
  for (const char* const table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // the titles
    while (std::getline(file, line)) {
      std::istringstream words(line);
      const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
      constexpr std::size_t kAddress = 1;  // with the port after a colon
      constexpr std::size_t kState = 3;
      constexpr std::size_t kInode = 9;
      if (fields.size() <= kInode || fields[kState] != "0A") continue;
      const std::string& address = fields[kAddress];
      found.emplace(fields[kInode], address.substr(0, address.find(':')));
    }
  }
  return found;
}

}  // namespace

int count_listening_sockets() {
  return static_cast<int>(listening_addresses().size());
}

std::vector<std::string> listening_addresses() {
  const std::map<std::string, std::string> listening = listening_inodes();
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry, error).string();
    constexpr std::string_view kSocket = "socket:[";
    if (!target.starts_with(kSocket)) continue;
    const auto it =
        listening.find(target.substr(kSocket.size(), target.size() - kSocket.size() - 1));
    if (it != listening.end()) found.push_back(it->second);
  }
  return found;
}

}  // namespace dunlin::testing
