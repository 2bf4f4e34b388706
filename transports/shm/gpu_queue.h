// GpuQueue: the copies that a lane of the shm transport has started on GPUs, and the operations
// that wait behind them.
//
// Puts to and from GPU memory are copies by a stream of the lane. They end after the call, so the
// operations that are ordered behind them, notifications and flushes, wait here until all copies
// before them are done. Puts between host memory need not wait. Owner thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/gpu/driver.h"
#include "transports/lane.h"
#include "transports/notification.h"
#include "transports/shm/busy_queues.h"
#include "transports/shm/constants.h"

namespace dunlin::transport::shm {

// Where one end of a copy is.
struct GpuPlace {
  std::byte* data = nullptr;
  GpuDriver* driver = nullptr;  // null: host memory
  int device = 0;
};

class GpuQueue final : private BusyQueue {
 public:
  // The lane, which publishes a notification when its turn has come, and learns whether anything is
  // queued.
  class Owner {
   public:
    virtual void publish_queued(const Notification& notification) = 0;
    // Writes bytes into memory of the peer that is not mapped here (Detour::target).
    virtual Status deliver(std::byte* bytes, std::size_t size, std::uint64_t target) = 0;
    // While `is_held`, the owner must queue its notifications here. After a copy has failed, that
    // is so forever.
    virtual void hold_notifications(bool is_held) = 0;

   protected:
    ~Owner() = default;
  };

  enum class Direction : std::uint8_t { kPut, kGet };
  // Host memory that stands in for an end that the GPU cannot copy to or from.
  struct Detour {
    std::unique_ptr<std::byte[]> bytes;
    std::uint64_t target = 0;  // address in the peer that gets the bytes afterwards; 0: none
  };

  // All arguments outlive the queue.
  GpuQueue(Owner& owner, BusyQueues& busy, const Clock& clock)
      : owner_(owner), busy_(busy), clock_(clock) {}
  ~GpuQueue() { close(); }
  GpuQueue(const GpuQueue&) = delete;
  GpuQueue& operator=(const GpuQueue&) = delete;

  // Starts a copy; one end at least is GPU memory. `notification`, unless null, is published after
  // the copy, as a part of the same operation. Returns kBusy if the queue is full. After any other
  // error the operation is not in the queue: the driver has refused it, or an earlier copy has
  // failed.
  Status copy(Direction direction, const GpuPlace& from, const GpuPlace& to, std::size_t size,
              const Notification* notification, Completion* completion) {
    return copy(direction, from, to, size, notification, completion, {});
  }
  // The same with a detour, whose bytes are the host's end of the copy.
  Status copy(Direction direction, const GpuPlace& from, const GpuPlace& to, std::size_t size,
              const Notification* notification, Completion* completion, Detour detour);
  // Makes the detour of a copy of `size` bytes. kBusy while others take kMostDetourBytes, and
  // kResourceExhausted without memory.
  Result<Detour> make_detour(std::size_t size, std::uint64_t target) const;
  // Queues an operation without a copy: a notification, or a flush if `notification` is null.
  // Returns errors as copy() does.
  Status add(const Notification* notification, Completion* completion);

  // Whether no copy accesses memory any more.
  bool is_idle() const { return count_ == 0 && !is_stuck_; }
  bool has_room() const { return count_ < entries_.size(); }
  // Whether puts are in progress. A get or an atomic must not overtake them.
  bool has_puts() const { return puts_ > 0; }
  // Why a copy failed; from then on, all operations return it.
  const Status& failure() const { return failure_; }
  // Completes the operations that are done, and returns their number.
  std::size_t progress() override;
  // Waits for the copies, up to kGpuCloseTime. Operations that are not done by then complete with
  // kClosed.
  void close() noexcept;

 private:
  struct DeviceStream {
    std::shared_ptr<GpuDriver> driver;  // outlives the stream and the events
    int device = 0;
    std::unique_ptr<GpuStream> stream;
    std::vector<std::unique_ptr<GpuEvent>> unused;  // events that no entry has
  };
  struct Entry {
    DeviceStream* stream = nullptr;
    std::unique_ptr<GpuEvent> event;  // behind the copy; null: no copy
    Completion* completion = nullptr;
    bool has_notification = false;
    Notification notification;
    std::array<std::byte, kInlineBytes> inline_data{};
    Direction direction = Direction::kGet;  // without a copy, too
    Detour detour;
    std::size_t size = 0;  // of the copy
  };

  Result<DeviceStream*> stream_of(const GpuPlace& place);
  static Result<std::unique_ptr<GpuEvent>> take_event(DeviceStream& stream);
  // Appends an entry. Requires room.
  Entry& push(const Notification* notification, Completion* completion);
  // Waits until no copy accesses memory any more, up to kGpuCloseTime. Otherwise, the memory of
  // detours is kept for good.
  void settle();
  // Completes the first entry, whose turn has come.
  void complete_first(Status status);
  void fail(Status failure);

  Owner& owner_;
  BusyQueues& busy_;
  const Clock& clock_;
  std::vector<std::unique_ptr<DeviceStream>> streams_;
  std::array<Entry, kGpuQueueDepth> entries_;  // a ring
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::size_t puts_ = 0;          // entries of that direction
  std::size_t detour_bytes_ = 0;  // of all entries
  bool is_stuck_ = false;         // a copy may still access memory
  Status failure_;
};

}  // namespace dunlin::transport::shm
