// Openings: the table in a process's segment in which its peers record which of its GPU memory they
// have open. CUDA does not define what happens when memory is freed that another process has open,
// so the owner keeps memory until no living process has it open any more (retired_memory.h).
//
// An opener first records the export's generation, then reads whether the export is still
// registered, and only then opens the memory. The owner first clears the generation of the place
// (segment.h), then reads the table. All four accesses are sequentially consistent, so that one of
// the two sees the other. An entry belongs to the process that its first word names. It changes
// hands by compare-and-swap only, so that any process can take over the entry of a process that was
// killed, at any time.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "runtime/status.h"
#include "transports/shm/constants.h"

namespace dunlin::transport::shm {

struct Opening {
  std::atomic<std::uint64_t> opener;  // a process, with its start time; 0: the entry is free
  std::atomic<std::uint64_t> generation;
};
using Openings = std::array<Opening, kMaxOpenings>;

// An entry of this process, from record() until the object's end. Any thread, one at a time.
class RecordedOpening {
 public:
  // Returns kResourceExhausted if living processes have all entries. `openings` outlives the
  // result.
  static Result<RecordedOpening> record(Openings& openings, std::uint64_t generation);
  RecordedOpening(RecordedOpening&& other) noexcept
      : entry_(std::exchange(other.entry_, nullptr)) {}
  RecordedOpening& operator=(RecordedOpening&& other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  // Leaves the entry as it is, so that it counts until this process ends.
  void keep() { entry_ = nullptr; }
  ~RecordedOpening() {
    // Pairs with the loads of opener_of(): what this process did with the memory comes before.
    if (entry_ != nullptr) entry_->opener.store(0, std::memory_order_release);
  }

 private:
  explicit RecordedOpening(Opening& entry) : entry_(&entry) {}
  Opening* entry_;
};

// A living process that has the export open; 0: there is none. A process that has ended has closed
// all that it had open.
pid_t opener_of(const Openings& openings, std::uint64_t generation);

}  // namespace dunlin::transport::shm
