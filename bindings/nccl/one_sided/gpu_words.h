// GpuWords: 64-bit words in a GPU's memory, to which this process adds numbers.
//
// Only kernels have atomics there. So this copies words to the host, adds, and copies them back, in
// rounds that last two copies each. Between the two, nothing else may change the words: NCCL sets a
// signal back only while no operation on it is under way. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/clock.h"
#include "runtime/gpu/driver.h"
#include "runtime/memory/region.h"

namespace dunlin::nccl {

class GpuWords {
 public:
  static Result<std::unique_ptr<GpuWords>> create(std::shared_ptr<GpuDriver> driver, int device);
  // Does not wait: call finish() first.
  ~GpuWords();
  GpuWords(const GpuWords&) = delete;
  GpuWords& operator=(const GpuWords&) = delete;

  // Adds in one of the next rounds. Words change in the order of their first pending add().
  void add(std::byte* word, std::uint64_t value);
  // Starts and ends rounds. An error is final: nothing is added any more.
  Status progress();
  // Calls progress() until all has been added. kDeadlineExceeded if `clock` reaches `deadline`
  // first: then the memory of the words may still be accessed.
  Status finish(const Clock& clock, TimePoint deadline);

 private:
  // Words that are changed in one round.
  static constexpr std::size_t kRound = 512;
  enum class Step : std::uint8_t { kIdle, kReading, kWriting };
  struct Addend {
    std::byte* word;
    std::uint64_t value;
  };

  GpuWords(std::shared_ptr<GpuDriver> driver, int device)
      : driver_(std::move(driver)), device_(device) {}
  Status begin_round();
  Status write_back();

  const std::shared_ptr<GpuDriver> driver_;
  const int device_;
  std::shared_ptr<MemoryRegion> copies_;  // of the words of a round
  bool is_pinned_ = false;
  std::unique_ptr<GpuStream> stream_;
  Step step_ = Step::kIdle;
  Status failure_;
  std::vector<Addend> round_;
  std::vector<Addend> pending_;
  std::unordered_map<std::byte*, std::size_t> places_;  // in pending_
};

}  // namespace dunlin::nccl
