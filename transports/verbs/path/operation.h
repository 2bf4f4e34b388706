// Operation: one entry of a SendRing: bytes to move, a notification behind them (or with the last
// of them), or both.
//
// The ring alone fills an operation, from the small structs here that lanes and rails hand over.
// Only its `progress` belongs to Outbound, which records there what it has posted.
#pragma once

#include <cstdint>

#include "transports/lane.h"

namespace dunlin::transport::verbs {

class GpuMemory;

enum class Action : std::uint8_t { kWrite, kFlush, kRead, kFetchAdd, kCompareSwap };

// Bytes to move between this process's memory and the peer's.
struct Transfer {
  std::uint64_t local = 0;   // address
  std::uint64_t remote = 0;  // address at the peer
  std::uint64_t size = 0;    // bytes
  std::uint32_t local_key = 0;
  std::uint32_t remote_key = 0;
  bool is_on_gpu = false;  // the local end is memory that the CPU must not read
};

// What an atomic does with the peer's word.
struct AtomicAccess {
  Action action = Action::kFetchAdd;
  std::uint64_t remote = 0;  // address at the peer
  std::uint32_t remote_key = 0;
  std::uint64_t operand = 0;        // to add, or to compare with
  std::uint64_t desired = 0;        // to swap in
  std::uint64_t* before = nullptr;  // where the former value goes, or null
};

// GPU memory that the bytes of a get are delivered to once the device has read them.
struct Sink {
  GpuMemory* memory = nullptr;  // null: the device has put them in place
  std::uint64_t offset = 0;
};

struct Operation {
  // The notification behind an operation's bytes. Its record stands in the ring at the operation's
  // position, used or not.
  struct Announcement {
    bool is_wanted = false;
    bool is_short = false;        // one work request carries the bytes and the notification
    std::uint32_t cell = 0;       // of the notification, or a service (wire.h)
    std::uint32_t immediate = 0;  // of a short notification
  };
  // How far the present queue pair has taken the operation.
  struct Progress {
    bool has_bytes_left = false;
    bool has_record_left = false;    // a notification, short or not
    std::uint64_t posted = 0;        // bytes
    std::uint64_t record = 0;        // number of its notification; 0: not posted
    std::uint64_t last_request = 0;  // number of its last work request; 0: not all are posted
    std::uint64_t awaited = 0;       // of a flush: number of the last landing note before it
  };

  const char* name = "";  // for errors
  Completion* completion = nullptr;
  Action action = Action::kWrite;
  bool moves_bytes = false;     // by one work request at least
  bool is_signaled = false;     // its last work request produces a completion
  bool is_tied = false;         // if it is refused, the next operation fails with it
  bool is_done = false;         // its completion has fired
  bool is_read_back = false;    // a READ whose bytes don't matter, and may be refused
  bool awaits_stripes = false;  // rails carry its bytes; until they have, nothing is posted
  Transfer transfer;
  Announcement announcement;
  AtomicAccess atomic;
  Sink sink;
  Progress progress;

  // Resets the progress: nothing of the operation is posted, or nothing counts any more.
  void rewind() {
    progress = {};
    progress.has_bytes_left = moves_bytes && !announcement.is_short && !is_done;
    progress.has_record_left = announcement.is_wanted && !is_done;
  }
  bool is_posted() const { return progress.last_request != 0; }
  bool is_atomic() const { return action == Action::kFetchAdd || action == Action::kCompareSwap; }
};

}  // namespace dunlin::transport::verbs
