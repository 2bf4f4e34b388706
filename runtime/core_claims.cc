#include "runtime/core_claims.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/log.h"

namespace dunlin {
namespace {

// Another user could have made the folder in /tmp, to keep cores from this one or to have its files
// written elsewhere.
bool is_own_folder(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
         (info.st_mode & 022) == 0;
}

}  // namespace

CoreClaims::CoreClaims(const Environment& environment) {
  const std::string runtime = environment.get("XDG_RUNTIME_DIR").value_or("");
  folder_ =
      runtime.empty() ? fmt::format("/tmp/dunlin-cores-{}", geteuid()) : runtime + "/dunlin-cores";
  if (mkdir(folder_.c_str(), 0700) == 0 || is_own_folder(folder_)) return;
  DUNLIN_INFO("the cores that other jobs use are not known: {} is no folder of this user",
              std::exchange(folder_, ""));
}

bool CoreClaims::take(int cpu) {
  if (folder_.empty()) return true;
  const std::string path = fmt::format("{}/{}", folder_, cpu);
  Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.is_open() && flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
    locks_.push_back(std::move(file));
    return true;
  }
  if (errno == EWOULDBLOCK) return false;
  DUNLIN_INFO("whether another job uses core {} is not known: {}: {}", cpu, path,
              std::strerror(errno));
  return true;
}

std::vector<int> CoreClaims::take_all(const std::vector<int>& cpus) {
  std::vector<int> taken;
  for (const int cpu : cpus) {
    if (take(cpu)) taken.push_back(cpu);
  }
  return taken;
}

}  // namespace dunlin
