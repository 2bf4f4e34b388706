#include "transports/shm/retired_memory.h"

#include <iterator>
#include <mutex>
#include <thread>

#include "runtime/log.h"

namespace dunlin::transport::shm {

// It belongs to the process, as GPU memory does: the transports that have left it are gone.
struct RetiredMemory::LeftBehind {
  std::mutex mutex;
  std::vector<Export> exports;
};

// Never destroyed: at the end of the process, its driver may be gone before.
RetiredMemory::LeftBehind& RetiredMemory::left_behind() {
  static LeftBehind* const kMade = new LeftBehind;
  return *kMade;
}

pid_t RetiredMemory::opener_of(const Export& each) {
  const auto& layout = *reinterpret_cast<const SegmentLayout*>(each.segment->data());
  return shm::opener_of(layout.openings, each.generation);
}

void RetiredMemory::free_closed(std::vector<Export>& exports) {
  std::erase_if(exports, [](const Export& each) { return opener_of(each) == 0; });
}

void RetiredMemory::add(std::shared_ptr<MemoryRegion> memory, std::uint64_t generation) {
  Export made{std::move(memory), generation, segment_};
  if (opener_of(made) != 0) exports_.push_back(std::move(made));
  LeftBehind& left = left_behind();
  const std::lock_guard lock(left.mutex);
  free_closed(left.exports);
}

void RetiredMemory::progress() {
  const TimePoint now = clock_.now();
  if (now < next_look_) return;
  next_look_ = now + kOpenersInterval;
  free_closed(exports_);
}

RetiredMemory::~RetiredMemory() {
  if (exports_.empty()) return;
  const TimePoint deadline = clock_.now() + kGpuCloseTime;
  for (free_closed(exports_); !exports_.empty() && clock_.now() < deadline; free_closed(exports_))
    std::this_thread::sleep_for(kOpenersInterval);
  for (const Export& each : exports_) {
    DUNLIN_WARN(
        "process {} still has {} bytes of this process's GPU memory open: they stay "
        "allocated",
        opener_of(each), each.memory->size());
  }
  LeftBehind& left = left_behind();
  const std::lock_guard lock(left.mutex);
  std::move(exports_.begin(), exports_.end(), std::back_inserter(left.exports));
}

}  // namespace dunlin::transport::shm
