// NotificationCells: how a rank learns, without receiving a message, that data has landed.
//
// A rank owns cells that its peers notify (Lane::notify, Lane::put_notify). A notification stores a
// sequence number, and what goes with it, into one cell; the owner polls the cell. Give each cell
// one writer. Sequence numbers in a cell only grow and the latest wins: a reader may miss values in
// between. So either the number in a cell is a count ("everything up to n is there"), or a cell is
// not notified again before it was read. Reading a sequence number makes everything visible that
// the writer's lane put before it.
//
// Owner thread of the job only; peers write the cells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <dunlin/job.h>

namespace dunlin {

// Identifies a cell of some rank. Send it to the peer that is to notify the cell.
enum class NotificationId : std::uint32_t {};

// The most bytes that travel inside a notification.
inline constexpr std::size_t kNotificationBytes = 40;

struct Notification {
  NotificationId id{};                          // a cell of the peer
  std::uint64_t sequence = 0;                   // above the cell's former one
  std::uint64_t tag = 0;                        // the caller's
  std::uint32_t length = 0;                     // the caller's
  std::span<const std::byte> inline_data = {};  // at most kNotificationBytes; copied by the call
};

class NotificationCells {
 public:
  // Allocates `count` cells with sequence number 0. Returns kResourceExhausted if too few are left:
  // a rank has 4,096 for each rank of the job, and at least 16,384.
  static Result<NotificationCells> allocate(Job& job, std::uint32_t count);

  NotificationCells(NotificationCells&&) noexcept;
  NotificationCells& operator=(NotificationCells&&) noexcept;
  // Peers must not notify the cells any more.
  ~NotificationCells();

  std::uint32_t size() const;
  // `index` must be below size(), here and in the functions below.
  NotificationId id(std::uint32_t index) const;
  std::uint64_t sequence(std::uint32_t index) const;
  // What the latest notification carried. Valid until the writer's next one, hence only while the
  // protocol keeps the writer from sending it.
  Notification read(std::uint32_t index) const;
  // Waits until the cell's sequence number is at least `sequence`. `writer` is the rank that
  // notifies the cell. Returns the errors of Job::wait().
  Status wait(std::uint32_t index, std::uint64_t sequence, Rank writer, Duration timeout);

 private:
  friend struct Internal;
  struct Impl;
  explicit NotificationCells(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin
