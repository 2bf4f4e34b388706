// Lane: a path to one peer. Communication above this layer goes through lanes, except where a
// peer's memory is mapped and is accessed directly.
//
// A lane has four operations: put (write bytes into the peer's memory), notify (publish a sequence
// number in a cell that the peer polls), put_notify (both in one operation) and flush (learn that
// earlier operations are done). Some lanes have gets and atomics as well. A call posts an operation
// and returns without waiting for it. The operation's Completion fires exactly once: during a later
// progress(), or already during the call. All calls come from the thread that owns the lane.
//
// Ordering. Every transport keeps these rules; its README says how.
//   - A notification becomes visible to the peer after the data of every put that was posted
//     earlier on the same lane, and after the lane's earlier notifications.
//   - Until such a notification or a flush(kRemote), the puts of a lane may land in any order, and
//     in pieces.
//   - Operations of different lanes are not ordered, not even if both lanes belong to one link.
//
// Completion. When a put, put_notify or notify completes, its local buffer may be reused. That does
// not mean that the peer can see the data: only the completion of a flush(kRemote), or an answer of
// the peer, says so.
//
// Errors. A call that returns an error has posted nothing. kBusy is flow control: call progress()
// and try again. An operation that fails after it was posted reports the error through its
// Completion. Once the peer is dead or the lane is closed, posting returns kPeerDead or kClosed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/rank.h"
#include "runtime/status.h"
#include "transports/completion.h"
#include "transports/notification.h"
#include "transports/remote_access.h"
#include "transports/slice.h"

namespace dunlin::transport {

// Fires the completion unless it is null. A caller that does not need an operation's outcome passes
// null.
inline void fire(Completion* completion, Status status) {
  if (completion != nullptr) completion->fire(std::move(status));
}
inline void fire(Completion* completion) {
  if (completion != nullptr) completion->fire(Status::ok());
}

class MappedCells;  // mapped_cells.h

enum class Visibility : std::uint8_t {
  kLocal,   // the local buffers of all earlier operations may be reused
  kRemote,  // the peer can see the data of all earlier puts
};

class Lane {
 public:
  virtual ~Lane() = default;

  // Writes the bytes of `from` into `to`. The slices must have equal sizes; zero is allowed.
  virtual Status put(LocalSlice from, RemoteSlice to, Completion* completion) = 0;
  // A put followed by a notification, as one operation with one completion.
  virtual Status put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                            Completion* completion) = 0;
  // Publishes the notification in a cell of the peer's board (transports/notification.h).
  virtual Status notify(const Notification& notification, Completion* completion) = 0;
  // Completes once `visibility` holds for all operations that were posted earlier on this lane.
  virtual Status flush(Visibility visibility, Completion* completion) = 0;
  // Optional abilities. Each returns null if the transport, or the device of either end, lacks the
  // ability. The returned objects live as long as the lane.
  virtual RemoteReads* reads() { return nullptr; }
  virtual RemoteAtomics* atomics() { return nullptr; }
  virtual MappedCells* mapped_cells() { return nullptr; }
  // The error with which the lane has stopped for good; OK while it works. A caller that posts
  // operations without a Completion and waits for the peer's answer must check it. A transport that
  // reports all such errors as the peer's death need not implement it.
  virtual Status failure() const { return Status::ok(); }
  // Whether all operations that were posted have completed, so that the lane accesses no local
  // memory any more. Unlike a flush, this can be asked when the peer is dead or the lane closed.
  virtual bool is_idle() const = 0;
  // Advances this lane's operations and fires the completions of those that are done. Returns how
  // many operations completed.
  virtual std::size_t progress() = 0;
  // Closes the lane for good. Every pending operation completes before this returns, with its own
  // outcome or with kClosed.
  virtual void close() noexcept = 0;
};

}  // namespace dunlin::transport
