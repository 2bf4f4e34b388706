// Lane: an ordered path to one peer. The rest of Dunlin communicates by its operations, except
// where a peer's memory is mapped and is accessed directly.
//
//   DUNLIN_ASSIGN(auto lane, dunlin::Lane::open(job, peer));
//   dunlin::Completion done;
//   DUNLIN_TRY(lane.put_notify(memory.whole(), inbox.whole(), {.id = cell, .sequence = 1}, &done));
//   DUNLIN_TRY(lane.wait(done, timeout));      // the local buffer may be reused
//
// Operations are posted and complete later. Their Completion, which may be null, fires exactly
// once: inside Job::progress(), inside another call of the job, or already inside the posting call.
//
// Ordering:
//   - A notification becomes visible after the data of every put that was posted earlier on the
//     same lane, and after earlier notifications of the lane.
//   - Puts of one lane may land in any order and piecewise, until a notification or
//     flush(Visibility::kRemote).
//   - A get or an atomic sees what earlier puts of the lane wrote. Later puts and notifications may
//     be carried out before it: before you overwrite memory that is being read, wait for the get.
//   - Lanes are not ordered among one another, not even the two lanes to one peer.
// The completion of put, put_notify and notify means that the local buffer may be reused. Only
// flush(kRemote), or an answer of the peer, says that the peer can see the data.
//
// Errors: kBusy is flow control: nothing was posted; call Job::progress() and try again. After any
// other error that a call returns, nothing was posted either. What fails later fails in the
// Completion. kPeerDead and kClosed are final.
//
// Over shared memory and verbs, posting allocates nothing. Over shared memory, it makes a system
// call only to wake a peer that sleeps. Over verbs, it makes one only if the device's driver does,
// as that of Soft-RoCE. Owner thread of the job only.
#pragma once

#include <cstdint>
#include <memory>

#include <dunlin/memory.h>
#include <dunlin/notification.h>

#include "transports/completion.h"

namespace dunlin {

using transport::Completion;

enum class LaneKind : std::uint8_t {
  kData,     // for bulk
  kControl,  // for short messages that must not queue behind bulk
};

enum class Visibility : std::uint8_t {
  kLocal,   // earlier operations have released their local buffers
  kRemote,  // the peer can see all earlier puts
};

// With which other accesses to the same word a remote atomic does not interleave.
enum class AtomicScope : std::uint8_t {
  kNone,       // this lane has no atomics
  kTransport,  // atomics through the same transport
  kSystem,     // atomics of every transport with this scope, and those of CPUs that map the memory
};

class Lane {
 public:
  // Returns the lane to a peer, and connects it on first use. Waits for Job::deadline() at most,
  // until the peer has published its address, and over tcp or ucx until the peer has made progress.
  // Lanes of one peer and kind are the same path. kUnavailable says for each transport why it
  // doesn't reach the peer.
  static Result<Lane> open(Job& job, Rank peer, LaneKind kind = LaneKind::kData);

  Lane(Lane&&) noexcept;
  Lane& operator=(Lane&&) noexcept;
  ~Lane();

  Rank peer() const;

  // Writes the bytes of `from` into `to`, which has the same size; zero is allowed.
  Status put(const MemorySlice& from, const RemoteMemorySlice& to, Completion* completion);
  // put(), then notify(), as one operation.
  Status put_notify(const MemorySlice& from, const RemoteMemorySlice& to,
                    const Notification& notification, Completion* completion);
  Status notify(const Notification& notification, Completion* completion);
  Status flush(Visibility visibility, Completion* completion);

  // Reads `from` into `to`, whose bytes are there when the completion fires. The peer takes no
  // part, except over ucx and tcp, where its progress answers. kUnavailable unless has_get().
  Status get(const RemoteMemorySlice& from, const MemorySlice& to, Completion* completion);
  bool has_get() const;

  // Atomics on 64-bit words: 8 bytes at a multiple of 8. `before` may be null. Otherwise it must
  // live until the completion fires, and then holds the word's former value if the completion fires
  // with ok. An atomic does not make earlier puts visible: call flush(kRemote) first if other ranks
  // act on the atomic. It is never carried out twice. If the connection breaks, it completes with
  // kIoError, and may have been carried out. kUnavailable when atomic_scope() is kNone.
  Status fetch_add(const RemoteMemorySlice& word, std::uint64_t operand, std::uint64_t* before,
                   Completion* completion);
  Status compare_swap(const RemoteMemorySlice& word, std::uint64_t expected, std::uint64_t desired,
                      std::uint64_t* before, Completion* completion);
  AtomicScope atomic_scope() const;

  // Waits until the completion has fired, and returns its status, or an error of Job::wait().
  Status wait(const Completion& completion, Duration timeout);

 private:
  friend struct Internal;
  struct Impl;
  explicit Lane(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin
