// Library and Prober. A library is memory that peers read, and whose counters they add to, while
// messages flow; it is registered, read and deregistered in every round. A prober does the reading
// and adding.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/guest/soak/message.h"
#include "transports/fabric.h"

namespace dunlin::soak {

// Counters at the beginning of a library. Its pattern follows them.
inline constexpr std::uint64_t kCounters = 8;
inline constexpr std::size_t kCounterBytes = kCounters * sizeof(std::uint64_t);
inline constexpr std::size_t kLargestGet = std::size_t{64} << 10;

// One rank's memory to read. The region is destroyed before the memory that it may wrap.
class Library {
 public:
  // `wraps`: wraps memory of the process instead of memory that the fabric allocates.
  static Result<std::unique_ptr<Library>> create(transport::Fabric& fabric, std::uint64_t seed,
                                                 bool wraps);
  transport::LocalRegion& region() { return *region_; }

 private:
  std::vector<std::uint64_t> memory_;
  std::unique_ptr<transport::LocalRegion> region_;
};

// Reads from one peer's library, or adds to its counters, one operation at a time.
class Prober {
 public:
  // Gets read into `landing`, which has kLargestGet bytes.
  Prober(transport::Link& link, transport::LocalSlice landing, std::uint64_t seed)
      : link_(link), landing_(landing), random_(seed) {}

  // Sets the peer's library of this round and the seed of its pattern. The prober must be idle.
  // Null removes the library.
  void set_library(transport::RemoteRegion* library, std::uint64_t seed);
  // Begins no further operation.
  void stop() { is_stopped_ = true; }
  bool is_idle() const { return !is_posted_; }
  // The sum added to this round's counters.
  std::uint64_t added() const { return added_; }

  // Checks the operation if it has completed, and posts the next.
  Status step();

  std::uint64_t gets() const { return gets_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t atomics() const { return atomics_; }

 private:
  Status finish();
  Status finish_get();
  Status finish_atomic();
  void plan();
  Status post();

  transport::Link& link_;
  transport::LocalSlice landing_;
  Random random_;
  transport::RemoteRegion* library_ = nullptr;
  std::uint64_t seed_ = 0;
  bool is_stopped_ = true;
  bool is_planned_ = false;
  bool is_posted_ = false;
  // The operation that is planned or in progress.
  transport::Lane* lane_ = nullptr;
  bool is_atomic_ = false;
  std::size_t offset_ = 0;
  std::size_t size_ = 0;
  std::uint64_t counter_ = 0;
  std::uint64_t operand_ = 0;
  std::uint64_t before_ = 0;
  transport::Completion completion_;

  std::array<std::uint64_t, kCounters> least_{};  // lower bounds of the counters
  std::uint64_t added_ = 0;
  std::uint64_t gets_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t atomics_ = 0;
};

}  // namespace dunlin::soak
