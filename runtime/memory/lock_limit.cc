#include "runtime/memory/lock_limit.h"

#include <linux/capability.h>
#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace dunlin {
namespace {

// The capability counts in the initial user namespace only, which has this fixed number.
constexpr const char* kInitialUserNamespace = "user:[4026531837]";

bool may_exceed_the_limit() {
  std::error_code error;
  const auto user_namespace = std::filesystem::read_symlink("/proc/self/ns/user", error);
  if (error || user_namespace != kInitialUserNamespace) return false;
  std::ifstream file("/proc/thread-self/status");
  for (std::string key; file >> key; file.ignore(4096, '\n')) {
    std::uint64_t capabilities = 0;
    if (key == "CapEff:" && file >> std::hex >> capabilities)
      return (capabilities >> CAP_IPC_LOCK & 1) != 0;
  }
  return false;
}

}  // namespace

std::optional<std::size_t> locked_memory_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  if (may_exceed_the_limit()) return {};
  return limit.rlim_cur;
}

std::string_view locked_memory_remedy() {
  return "raise it before the start: `ulimit -l unlimited`; permanently with a line `* - memlock "
         "unlimited` in /etc/security/limits.d; for services of systemd with "
         "LimitMEMLOCK=infinity; "
         "for containers with --ulimit memlock=-1";
}

}  // namespace dunlin
