// Lane: an ordered path to one peer, the interface that everything above is built on.
//
// Operations are posted and complete later; their Completion fires exactly once, inside progress()
// or already inside the call. All calls come from the owner thread.
//
// Ordering, the contract of every transport (each says in its README how it keeps it):
//   - A notification becomes visible after the data of every put that was posted earlier on the
//     same lane, and after earlier notifications of the lane.
//   - Puts of one lane may land in any order, and piecewise, until a notification or a
//     flush(kRemote).
//   - There is no order between lanes, not even those of one link.
// Completion of put, put_notify and notify means that the local buffer may be reused; that the peer
// can see the data is said by flush(kRemote) only, or by the peer.
//
// Errors: kBusy is flow control (nothing was posted: progress, then try again). Anything else that
// is returned means that nothing was posted. What fails later fails in the Completion. Once the
// peer is dead or the lane is closed, posting returns kPeerDead or kClosed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/rank.h"
#include "runtime/status.h"
#include "transports/notification.h"
#include "transports/remote_access.h"
#include "transports/slice.h"

namespace dunlin::transport {

// The fate of one posted operation. Owned by the caller; has to live, unmoved, until it has fired,
// and can be used again after reset().
class Completion {
 public:
  Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  bool is_done() const { return is_done_; }
  // Meaningful once done.
  const Status& status() const { return status_; }
  void reset() {
    is_done_ = false;
    status_ = Status::ok();
  }

  // For transports. Firing twice is a bug of the transport and ends the program.
  void fire(Status status);

 private:
  bool is_done_ = false;
  Status status_;
};

// Null completions are allowed everywhere: nobody asks.
inline void fire(Completion* completion, Status status) {
  if (completion != nullptr) completion->fire(std::move(status));
}
inline void fire(Completion* completion) {
  if (completion != nullptr) completion->fire(Status::ok());
}

class MappedCells;  // mapped_cells.h

enum class Visibility : std::uint8_t {
  kLocal,   // earlier operations have released their local buffers
  kRemote,  // the peer can see all earlier puts
};

class Lane {
 public:
  virtual ~Lane() = default;

  // Writes `from` over `to`; equal sizes, zero allowed.
  virtual Status put(LocalSlice from, RemoteSlice to, Completion* completion) = 0;
  // put, then notify, as one operation.
  virtual Status put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                            Completion* completion) = 0;
  virtual Status notify(const Notification& notification, Completion* completion) = 0;
  virtual Status flush(Visibility visibility, Completion* completion) = 0;
  // Null: this lane's transport, or one end's device, can't do it. Live as long as the lane.
  virtual RemoteReads* reads() { return nullptr; }
  virtual RemoteAtomics* atomics() { return nullptr; }
  virtual MappedCells* mapped_cells() { return nullptr; }
  // Moves this lane's operations on; returns how many completed.
  virtual std::size_t progress() = 0;
  // Terminal: what is pending completes, with its own outcome or kClosed, before this returns.
  virtual void close() noexcept = 0;
};

}  // namespace dunlin::transport
