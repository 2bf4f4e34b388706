// Counters per peer: operations, bytes and waits. They are plain numbers that the owner thread of
// the lanes writes. Other threads may read slightly old values. A peer takes memory from its first
// use on.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/rank.h"

namespace dunlin {

struct PeerCounters {
  std::uint64_t puts = 0;
  std::uint64_t put_bytes = 0;
  std::uint64_t notifies = 0;
  std::uint64_t gets = 0;
  std::uint64_t get_bytes = 0;
  std::uint64_t atomics = 0;
  std::uint64_t busy = 0;           // operations that were refused for now
  std::uint64_t messages_sent = 0;  // channel messages
  std::uint64_t messages_received = 0;
  std::uint64_t credit_waits = 0;  // sends that had to wait for a free slot
};

class Counters {
 public:
  explicit Counters(int size) : peers_(static_cast<std::size_t>(size)) {}
  // Owner thread only. The result stays valid.
  PeerCounters& peer(Rank rank);
  // All zero for a peer that was not used.
  const PeerCounters& peer(Rank rank) const;
  PeerCounters total() const;
  // One line per peer that was used. It is printed when a deadline passes.
  std::string dump() const;

 private:
  std::vector<std::atomic<PeerCounters*>> peers_;  // by rank; null: not used
  std::deque<PeerCounters> used_;
};

}  // namespace dunlin
