// Notifications: how a process learns that a peer's data has landed in its memory.
//
// Every process owns a board of cells. A cell is one cache line. A notification stores a sequence
// number, a tag, a length and up to 40 bytes of inline data in one cell of the receiver's board,
// and the receiver polls the cell. Only one peer writes to a cell. The sequence numbers in a cell
// only grow, and a newer notification overwrites an older one, so the reader may miss some. A cell
// is therefore used as a counter ("everything up to n is done"), or is not written again before the
// reader has read it.
//
// Transports carry notifications in different ways: a release store, an RDMA immediate, an active
// message. In all cases the reader's acquire load of `sequence` pairs with the release store that
// publishes it, so everything that the lane put before the notification is visible afterwards.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <type_traits>

#include "runtime/memory/region.h"
#include "runtime/status.h"

namespace dunlin::transport {

inline constexpr std::size_t kCacheLine = 64;
// `size` rounded up to whole cache lines.
constexpr std::size_t whole_cache_lines(std::size_t size) {
  return (size + kCacheLine - 1) / kCacheLine * kCacheLine;
}
// The capacity of a cell for inline data.
inline constexpr std::size_t kInlineBytes = 40;

// The index of a cell on a board.
enum class NotifyId : std::uint32_t {};
// The cell `offset` places after `first`, for adjacent cells made by NotifyBoard::allocate().
constexpr NotifyId cell_at(NotifyId first, std::uint32_t offset) {
  return NotifyId(static_cast<std::uint32_t>(first) + offset);
}

// What a lane is asked to store in cell `id` of the peer's board. The call that posts it copies
// `inline_data`, which has at most kInlineBytes, before it returns.
struct Notification {
  NotifyId id{};
  std::uint64_t sequence = 0;
  std::uint64_t tag = 0;     // free for the caller
  std::uint32_t length = 0;  // free for the caller, e.g. the size of the message it announces
  std::span<const std::byte> inline_data;
};

// memcpy for 1 to 64 bytes. It uses two overlapping moves. A call of memcpy would take a noticeable
// part of the time in which one cache line travels.
[[gnu::always_inline]] inline void copy_inline(std::byte* to, const std::byte* from,
                                               std::size_t size) {
  const auto ends = [&]<std::size_t kWidth>(std::integral_constant<std::size_t, kWidth>) {
    std::byte head[kWidth];
    std::byte tail[kWidth];
    std::memcpy(head, from, kWidth);
    std::memcpy(tail, from + size - kWidth, kWidth);
    std::memcpy(to, head, kWidth);
    std::memcpy(to + size - kWidth, tail, kWidth);
  };
  if (size > 32) {
    std::memcpy(to, from, 32);
    to += 32, from += 32, size -= 32;
  }
  if (size >= 16) return ends(std::integral_constant<std::size_t, 16>());
  if (size >= 8) return ends(std::integral_constant<std::size_t, 8>());
  if (size >= 4) return ends(std::integral_constant<std::size_t, 4>());
  if (size >= 2) return ends(std::integral_constant<std::size_t, 2>());
  *to = *from;
}

struct alignas(kCacheLine) NotifyCell {
  std::atomic<std::uint64_t> sequence;
  std::uint64_t tag;
  std::uint32_t length;
  std::uint32_t inline_size;
  std::byte inline_data[kInlineBytes];

  // Fills the cell. The release store pairs with the reader's acquire load of `sequence`.
  void publish(const Notification& notification) {
    tag = notification.tag;
    length = notification.length;
    inline_size = static_cast<std::uint32_t>(notification.inline_data.size());
    if (inline_size != 0) copy_inline(inline_data, notification.inline_data.data(), inline_size);
    sequence.store(notification.sequence, std::memory_order_release);
  }
};
static_assert(sizeof(NotifyCell) == kCacheLine && std::atomic<std::uint64_t>::is_always_lock_free);

// The cells of one process, and which of them are in use. Peers write to the cells; all functions
// are called by the owner thread only.
//
// A board is address space: a page of it takes memory from the first use of one of its cells on. So
// a job of many thousand ranks may have a cell for each peer, though each rank speaks to few.
class NotifyBoard {
 public:
  static Result<std::unique_ptr<NotifyBoard>> create(std::size_t cells);
  // A board in private memory without a file descriptor, which only peers in this process can use.
  static std::unique_ptr<NotifyBoard> create_private(std::size_t cells);

  // Allocates `count` adjacent cells, whose sequence numbers are 0. Freed cells are reused as late
  // as possible. Neither this nor free() takes time for each cell of a large block of a shared
  // board.
  Result<NotifyId> allocate(std::size_t count);
  void free(NotifyId first, std::size_t count);

  const NotifyCell& cell(NotifyId id) const { return cells()[static_cast<std::size_t>(id)]; }
  NotifyCell& cell(NotifyId id) { return cells()[static_cast<std::size_t>(id)]; }
  std::uint64_t sequence(NotifyId id) const {
    return cell(id).sequence.load(std::memory_order_acquire);
  }
  std::size_t size() const { return size_; }
  // The first cell from `from` on whose page has memory; size() if there is none. The cells before
  // it have none, and reading them would take some. It makes a system call.
  std::size_t next_used(std::size_t from) const;
  const std::shared_ptr<MemoryRegion>& memory() const { return memory_; }

 private:
  NotifyBoard(std::shared_ptr<MemoryRegion> memory, std::size_t cells)
      : memory_(std::move(memory)), size_(cells), free_{{0, cells}} {}
  explicit NotifyBoard(std::size_t private_cells);
  NotifyCell* cells() const { return reinterpret_cast<NotifyCell*>(memory_->data()); }
  // The first of `count` adjacent free cells that is not before `from`; size() if there are none.
  std::size_t find(std::size_t from, std::size_t count) const;
  void take(std::size_t first, std::size_t count);
  // Sets the sequence numbers of cells that have been used before to 0.
  void clear(std::size_t first, std::size_t count);

  std::unique_ptr<NotifyCell[]> private_cells_;  // wrapped by memory_; null if memory_ is shared
  std::shared_ptr<MemoryRegion> memory_;
  std::size_t size_;
  std::map<std::size_t, std::size_t> free_;  // blocks of free cells: first -> count, coalesced
  std::size_t next_ = 0;                     // where the next search for free cells starts
  std::size_t fresh_ = 0;                    // no cell from this one on has been used
};

}  // namespace dunlin::transport
