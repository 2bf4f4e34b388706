// Counters per peer: what was moved, and what was waited for. Plain numbers, written by the owner
// thread of the lanes; other threads may read a slightly old value.
#pragma once

#include <cstdint>
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
  std::uint64_t busy = 0;           // operations refused by flow control
  std::uint64_t messages_sent = 0;  // channel messages
  std::uint64_t messages_received = 0;
  std::uint64_t credit_waits = 0;  // sends that found no free slot
};

class Counters {
 public:
  explicit Counters(int size) : peers_(static_cast<std::size_t>(size)) {}
  PeerCounters& peer(Rank rank) { return peers_[rank.index()]; }
  const PeerCounters& peer(Rank rank) const { return peers_[rank.index()]; }
  PeerCounters total() const;
  // A line per peer that anything happened with; printed when a deadline passes.
  std::string dump() const;

 private:
  std::vector<PeerCounters> peers_;
};

}  // namespace dunlin
