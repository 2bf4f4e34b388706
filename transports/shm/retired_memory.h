// RetiredMemory: GPU memory whose regions have ended while peers may still have it open
// (openings.h). It is freed when no living process has it open any more.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/clock.h"
#include "runtime/memory/region.h"
#include "transports/shm/segment.h"

namespace dunlin::transport::shm {

// Owner thread only.
class RetiredMemory {
 public:
  // `segment` is this process's. Its table of openings says which processes have the memory open.
  // `clock` outlives the object.
  RetiredMemory(std::shared_ptr<MemoryRegion> segment, const Clock& clock)
      : segment_(std::move(segment)), clock_(clock) {}
  // Waits up to kGpuCloseTime for the peers. What a peer has open even then stays allocated: later
  // transports of this process free it when the peer has closed it, and otherwise the driver does
  // when this process ends.
  ~RetiredMemory();
  RetiredMemory(const RetiredMemory&) = delete;
  RetiredMemory& operator=(const RetiredMemory&) = delete;

  // Takes the memory of an export whose place has no generation any more. Frees it at once if no
  // peer has it open.
  void add(std::shared_ptr<MemoryRegion> memory, std::uint64_t generation);
  bool is_empty() const { return exports_.empty(); }
  // Frees what no peer has open any more. Looks every kOpenersInterval only.
  void progress();

 private:
  struct Export {
    std::shared_ptr<MemoryRegion> memory;
    std::uint64_t generation = 0;
    std::shared_ptr<MemoryRegion> segment;  // with the table that tells who has it open
  };
  struct LeftBehind;

  static pid_t opener_of(const Export& each);
  static void free_closed(std::vector<Export>& exports);
  // What transports of this process that have ended have left.
  static LeftBehind& left_behind();

  std::shared_ptr<MemoryRegion> segment_;
  const Clock& clock_;
  TimePoint next_look_{};
  std::vector<Export> exports_;
};

}  // namespace dunlin::transport::shm
