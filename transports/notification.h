// Notifications: how a peer learns, without a message to receive, that data has landed.
//
// Every process owns a board of cells, each a cache line in memory that its peers can write. A
// notification stores a sequence number, and what goes with it, into one cell; the owner polls the
// cell. A cell has one writer. Sequences in a cell only grow, and the latest wins: a reader may
// miss values in between, so a cell counts ("up to n is done") or is not reused before it was read.
//
// However a transport carries it (a release store, an immediate, an active message), the reader's
// acquire load of `sequence` pairs with the store that publishes it: what the lane put before is
// visible then.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "runtime/memory/region.h"
#include "runtime/status.h"

namespace dunlin::transport {

inline constexpr std::size_t kCacheLine = 64;
// What fits into a cell beside its numbers.
inline constexpr std::size_t kInlineBytes = 40;

// Index of a cell on a board.
enum class NotifyId : std::uint32_t {};
// Of neighbouring cells, as NotifyBoard::allocate() hands them out.
constexpr NotifyId cell_at(NotifyId first, std::uint32_t offset) {
  return NotifyId(static_cast<std::uint32_t>(first) + offset);
}

// To be stored in cell `id` of the peer's board. `inline_data` (at most kInlineBytes) is copied
// before the call returns.
struct Notification {
  NotifyId id{};
  std::uint64_t sequence = 0;
  std::uint64_t tag = 0;     // the user's
  std::uint32_t length = 0;  // the user's: bytes of the message that this announces, say
  std::span<const std::byte> inline_data;
};

// memcpy for 1 to 64 bytes: two moves that overlap instead of a call, whose cost would
// show beside that of moving one cache line.
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

  // The one way to fill a cell; pairs with the reader's acquire load of `sequence`.
  void publish(const Notification& notification) {
    tag = notification.tag;
    length = notification.length;
    inline_size = static_cast<std::uint32_t>(notification.inline_data.size());
    if (inline_size != 0) copy_inline(inline_data, notification.inline_data.data(), inline_size);
    sequence.store(notification.sequence, std::memory_order_release);
  }
};
static_assert(sizeof(NotifyCell) == kCacheLine && std::atomic<std::uint64_t>::is_always_lock_free);

// The cells of one process, and who uses which. Owner thread only; peers write the cells.
class NotifyBoard {
 public:
  static Result<std::unique_ptr<NotifyBoard>> create(std::size_t cells);
  // In memory that no other process can map, without a descriptor: for peers within this process.
  static std::unique_ptr<NotifyBoard> create_private(std::size_t cells);

  // `count` neighbouring cells, with sequence 0. Freed cells are handed out again as late as
  // possible.
  Result<NotifyId> allocate(std::size_t count);
  void free(NotifyId first, std::size_t count);

  const NotifyCell& cell(NotifyId id) const { return cells()[static_cast<std::size_t>(id)]; }
  NotifyCell& cell(NotifyId id) { return cells()[static_cast<std::size_t>(id)]; }
  std::uint64_t sequence(NotifyId id) const {
    return cell(id).sequence.load(std::memory_order_acquire);
  }
  std::size_t size() const { return used_.size(); }
  const std::shared_ptr<MemoryRegion>& memory() const { return memory_; }

 private:
  NotifyBoard(std::shared_ptr<MemoryRegion> memory, std::size_t cells)
      : memory_(std::move(memory)), used_(cells) {}
  explicit NotifyBoard(std::size_t private_cells);
  NotifyCell* cells() const { return reinterpret_cast<NotifyCell*>(memory_->data()); }
  bool is_free(std::size_t first, std::size_t count) const;

  std::unique_ptr<NotifyCell[]> private_cells_;  // what memory_ wraps, if it isn't shared
  std::shared_ptr<MemoryRegion> memory_;
  std::vector<bool> used_;
  std::size_t next_ = 0;  // where the search starts
};

}  // namespace dunlin::transport
