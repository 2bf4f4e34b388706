// The layout of a flight record: the file in which a rank records what it does and for whom it
// waits. recorder.h writes it, reader.h reads it, while the rank runs or after its death.
//
// The file has this fixed size, and is an array of 64-bit words in the byte order of the host,
// except for texts. One thread at a time writes, with relaxed stores. Parts that belong together
// begin with a sequence number, which is odd while the part changes (a seqlock). Words outside such
// parts are single counters.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dunlin::flight {

using Word = std::atomic<std::uint64_t>;
static_assert(sizeof(Word) == 8 && Word::is_always_lock_free);

inline constexpr std::uint64_t kMagic = 0x31544847494c4644;  // "DFLIGHT1"
// Any change of the layout or of what a word means increases it.
inline constexpr std::uint64_t kVersion = 1;

// The last operations and waits. At 40 bytes each they take most of the file. A run of equal
// operations without waits takes one entry.
inline constexpr std::size_t kEvents = 4096;
// The peers for which a rank waited longest. They lie in sets: a peer that is new in a full set
// replaces the one with the shortest time, whose time goes to `others`. So a job of any size takes
// the same space, and those that matter stay.
inline constexpr std::size_t kPeerSets = 32;
inline constexpr std::size_t kPeersPerSet = 8;
inline constexpr std::size_t kPeers = kPeerSets * kPeersPerSet;
// Kinds of operations. The last name stands for all that no longer fit.
inline constexpr std::size_t kNames = 32;
inline constexpr std::size_t kNameBytes = 32;
inline constexpr std::size_t kTransports = 8;
inline constexpr std::size_t kErrorWords = 62;  // of the text of an error

// Written once, before the magic number. Texts end with a zero byte. Times are those of
// CLOCK_MONOTONIC in nanoseconds, here and everywhere else in the file.
struct Header {
  Word magic;
  Word version;
  Word file_bytes;
  Word rank;
  Word size;
  Word began_ns;
  Word began_unix_ns;
  Word spare;
  char job[96];
  char host[64];
  char program[32];
  char process[128];  // bootstrap::ProcessId
  char more_spare[128];
};
static_assert(sizeof(Header) == 512);

enum class Phase : std::uint64_t { kRunning, kEnded, kFailed };

// What the rank does now. A seqlock.
struct alignas(64) Now {
  Word sequence;
  Word operation;      // index of its name
  Word bytes;          // of the operation
  Word since_ns;       // when the operation began; 0: since the last reading of the clock
  Word awaited;        // the rank that it waits for, plus 1; 0: it does not wait
  Word wait_since_ns;  // for this rank
  Word phase;
  Word wait_sequence;  // odd while the end of a wait moves from here to the sums (a seqlock)
};

// Counters that only grow, each on its own.
struct alignas(64) Counts {
  Word seen_ns;  // the last time that the recorder knows
  Word begun;    // operations
  Word ended;
  Word waits;         // those of at least kShortestWait
  Word waited_ns;     // the sum of their times, without one in progress
  Word events;        // event n is at n % kEvents
  Word others_waits;  // for peers that are not among `peers`
  Word others_waited_ns;
};

// The steps of the program's own loop. A seqlock, written by the thread that calls step().
struct alignas(64) Steps {
  Word sequence;
  Word number;     // as the program counts
  Word began_ns;   // the step in progress
  Word steps;      // completed
  Word total_ns;   // their time
  Word own_ns;     // the part of it in which the rank did not wait
  Word waited_ns;  // Counts::waited_ns when the step in progress began
  Word spare;
};

struct TransportBytes {
  char name[16];
  Word put;
  Word got;
};

// A seqlock.
struct PeerWait {
  Word sequence;
  Word rank;  // plus 1; 0: no entry
  Word waited_ns;
  Word waits;
};

enum class EventKind : std::uint8_t { kNone, kOperation, kWait, kStep, kError };

// An event is valid if `number` is its number plus 1 before and after it was read. 0: it is being
// written.
struct Event {
  Word number;
  Word began_ns;
  Word ended_ns;
  Word value;   // bytes of an operation, number of a step
  Word packed;  // kind, name, peer plus 1, count; see pack()
};
static_assert(sizeof(Event) == 40);

inline constexpr std::uint64_t kMostPacked = (std::uint64_t{1} << 24) - 1;

struct Packed {
  EventKind kind = EventKind::kNone;
  std::uint8_t name = 0;
  std::uint32_t peer = 0;   // plus 1; 0: none
  std::uint32_t count = 0;  // equal operations in a row
};
constexpr std::uint64_t pack(const Packed& fields) {
  return static_cast<std::uint64_t>(fields.kind) | std::uint64_t{fields.name} << 8 |
         std::uint64_t{fields.peer} << 16 | std::uint64_t{fields.count} << 40;
}
constexpr Packed unpack(std::uint64_t packed) {
  return {static_cast<EventKind>(packed & 0xff), static_cast<std::uint8_t>(packed >> 8 & 0xff),
          static_cast<std::uint32_t>(packed >> 16 & kMostPacked),
          static_cast<std::uint32_t>(packed >> 40 & kMostPacked)};
}

// The last error. A seqlock.
struct LastError {
  Word sequence;
  Word when_ns;
  Word text[kErrorWords];
};

struct File {
  Header header;
  Now now;
  Counts counts;
  Steps steps;
  Word names_used;
  char names[kNames][kNameBytes];
  Word transports_used;
  TransportBytes transports[kTransports];
  LastError error;
  PeerWait peers[kPeers];
  Event events[kEvents];
};
static_assert(sizeof(File) % 64 == 0 && sizeof(File) < 256 * 1024);

}  // namespace dunlin::flight
