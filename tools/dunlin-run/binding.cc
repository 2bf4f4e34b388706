#include "tools/dunlin-run/binding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/log.h"
#include "runtime/topology.h"

namespace dunlin::run {

Result<std::vector<std::optional<cpu_set_t>>> plan_binding(Bind bind, int ranks,
                                                           CoreClaims& claims) {
  std::vector<int> cores = host_topology().core_cpus;
  auto count = static_cast<int>(cores.size());
  std::vector<std::optional<cpu_set_t>> plan(static_cast<std::size_t>(ranks));
  if (bind == Bind::kCore && ranks > count) {
    return Status(Code::kInvalidArgument,
                  fmt::format("--bind core: {} ranks on {} usable cores", ranks, count));
  }
  const bool shares = ranks > count;
  if (bind == Bind::kNone || (shares && bind == Bind::kAuto) || ranks == 1) return plan;
  // When the host has more cores than are usable, do not bind ranks that share cores: each would
  // conclude that all ranks have their fair shares of the host, and spin (cores_shared_by()).
  if (count == 0 || (shares && ranks <= host_topology().host_cores)) return plan;
  if (!shares) {
    const int usable = count;
    cores = claims.take_all(cores);
    count = static_cast<int>(cores.size());
    if (ranks > count && bind == Bind::kCore) {
      return Status(Code::kResourceExhausted,
                    fmt::format("--bind core: {} ranks on {} usable cores, {} of which other jobs "
                                "have bound their ranks to",
                                ranks, usable, usable - count));
    }
    if (ranks > count) {
      DUNLIN_INFO("no rank is bound, as other jobs have bound theirs to {} of {} cores",
                  usable - count, usable);
      claims.release();
      return plan;
    }
    DUNLIN_INFO("{} ranks are bound to the cores of CPUs {}", ranks, fmt::join(cores, ", "));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    const int first = shares ? rank % count : rank * count / ranks;
    const int end = shares ? first + 1 : (rank + 1) * count / ranks;
    for (int core = first; core < end; ++core) {
      CPU_SET(static_cast<std::size_t>(cores[static_cast<std::size_t>(core)]), &cpus);
    }
    plan[static_cast<std::size_t>(rank)] = cpus;
  }
  return plan;
}

}  // namespace dunlin::run
