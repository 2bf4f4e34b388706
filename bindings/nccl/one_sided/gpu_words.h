// GpuWords: 64-bit words in a GPU's memory, to which this process adds numbers.
//
// The host has no atomics there. So this copies words to the host, adds, and copies them back. Such
// a round changes many words at once. During a round, nothing else may change its words: NCCL sets
// a signal back only while no operation on it is under way. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/gpu/driver.h"
#include "runtime/memory/region.h"

namespace dunlin::nccl {

class GpuWords {
 public:
  static Result<std::unique_ptr<GpuWords>> create(std::shared_ptr<GpuDriver> driver, int device);
  // Copies of a round that is in progress go on. Before memory is freed, ask is_using().
  ~GpuWords();
  GpuWords(const GpuWords&) = delete;
  GpuWords& operator=(const GpuWords&) = delete;

  // Adds in the next round that has room. Several numbers for one word are added at once.
  void add(std::byte* word, std::uint64_t value);
  // Starts and ends rounds. An error is final: nothing is added any more.
  Status progress();
  // Whether words in this memory are yet to be changed.
  bool is_using(const std::byte* data, std::size_t size) const;

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
  std::unordered_map<std::byte*, std::size_t> index_;  // of words, in pending_
};

}  // namespace dunlin::nccl
