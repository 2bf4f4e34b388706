#include "runtime/descriptor_limit.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

namespace dunlin {

std::uint64_t raise_descriptor_limit(std::uint64_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return UINT64_MAX;
  if (limit.rlim_cur >= wanted) return limit.rlim_cur;
  rlimit raised = limit;
  raised.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted);
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

Status require_descriptors(std::uint64_t needed, const std::string& what) {
  const std::uint64_t limit = raise_descriptor_limit(needed);
  if (limit >= needed) return Status::ok();
  return {Code::kResourceExhausted,
          fmt::format("{} takes about {} open files here, and this process may have {}: "
                      "raise the limit (ulimit -n)",
                      what, needed, limit)};
}

}  // namespace dunlin
