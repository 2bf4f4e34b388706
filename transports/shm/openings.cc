#include "transports/shm/openings.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/bootstrap/process_id.h"

namespace dunlin::transport::shm {
namespace {

using bootstrap::ProcessId;
using bootstrap::ProcessWatch;

// Linux numbers processes up to 2^22. What is left for the start time, in hundredths of a second,
// lasts for a thousand years.
constexpr int kTimeBits = 42;
constexpr std::uint64_t kTimeMask = (std::uint64_t{1} << kTimeBits) - 1;

std::uint64_t word_of(const ProcessId& process) {
  return static_cast<std::uint64_t>(process.pid) << kTimeBits | (process.start_time & kTimeMask);
}

pid_t pid_of(std::uint64_t opener) {
  return static_cast<pid_t>(opener >> kTimeBits);
}

// A process of which nothing can be learned counts as living.
bool has_ended(std::uint64_t opener) {
  static const std::string space = ProcessId::of_self().space;
  const ProcessId process{space, pid_of(opener), opener & kTimeMask};
  return bootstrap::watch_process(process).state == ProcessWatch::State::kEnded;
}

// Makes the entry this process's if `former` has it.
bool take(Opening& entry, std::uint64_t former, std::uint64_t own) {
  return entry.opener.load(std::memory_order_relaxed) == former &&
         entry.opener.compare_exchange_strong(former, own);
}

}  // namespace

// Until its new generation is stored, an entry that is taken says that this process has open what
// the entry's former process had. That can only delay the owner.
Result<RecordedOpening> RecordedOpening::record(Openings& openings, std::uint64_t generation) {
  const std::uint64_t own = word_of(ProcessId::of_self());
  auto found = std::ranges::find_if(openings, [&](Opening& each) { return take(each, 0, own); });
  if (found == openings.end()) {
    found = std::ranges::find_if(openings, [&](Opening& each) {
      const std::uint64_t former = each.opener.load(std::memory_order_relaxed);
      return has_ended(former) && take(each, former, own);
    });
  }
  if (found == openings.end()) {
    return Status(Code::kResourceExhausted,
                  fmt::format("processes have GPU memory of the peer open {} times, the most "
                              "that are possible",
                              openings.size()));
  }
  found->generation.store(generation);
  return RecordedOpening(*found);
}

pid_t opener_of(const Openings& openings, std::uint64_t generation) {
  for (const Opening& each : openings) {
    const std::uint64_t opener = each.opener.load();
    if (opener != 0 && each.generation.load() == generation && !has_ended(opener))
      return pid_of(opener);
  }
  return 0;
}

}  // namespace dunlin::transport::shm
