#include "transports/verbs/device/preflight.h"

#include <fmt/format.h>
#include <unistd.h>

#include "runtime/log.h"
#include "runtime/memory/lock_limit.h"
#include "transports/transport.h"
#include "transports/verbs/connect/wire.h"

namespace dunlin::transport::verbs {

Status check_locked_memory(const ProtectionDomain& domain, std::uint32_t queue_depth, bool warns) {
  // Each lane: the records of its sending end, and the mailbox of its receiving end.
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto in_pages = [page](std::size_t records) {
    return (records * sizeof(Record) + page - 1) / page * page;
  };
  const std::size_t needed = kLaneKinds * (in_pages(queue_depth + 1) + in_pages(queue_depth));
  MemoryRegion::Options options;
  options.huge_pages = false;
  options.is_private = true;
  options.name = "dunlin-preflight";
  DUNLIN_ASSIGN(const auto memory, MemoryRegion::allocate(needed, options));
  if (const auto key = MemoryKey::create(domain, *memory); !key) {
    return {Code::kUnavailable, fmt::format("cannot register the memory of one connection: {}",
                                            key.status().message())};
  }
  const auto limit = locked_memory_limit();
  if (warns && limit && *limit < kEnoughLockedMemory) {
    DUNLIN_WARN(
        "verbs: a process may lock only {} KiB, and all memory that peers write to is locked; {}",
        *limit >> 10, locked_memory_remedy());
  }
  return Status::ok();
}

}  // namespace dunlin::transport::verbs
