#include "transports/notification.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

namespace dunlin::transport {
namespace {

// Blocks of at least this many cells are cleared by the page: a system call takes about as long as
// it takes to write to so many cells.
constexpr std::size_t kLargeBlock = 1024;

}  // namespace

Result<std::unique_ptr<NotifyBoard>> NotifyBoard::create(std::size_t cells) {
  MemoryRegion::Options options;
  options.name = "dunlin-board";
  options.pages = Pages::kSparse;
  DUNLIN_ASSIGN(auto memory, MemoryRegion::allocate(cells * sizeof(NotifyCell), options));
  return std::unique_ptr<NotifyBoard>(new NotifyBoard(std::move(memory), cells));
}

std::unique_ptr<NotifyBoard> NotifyBoard::create_private(std::size_t cells) {
  return std::unique_ptr<NotifyBoard>(new NotifyBoard(cells));
}

NotifyBoard::NotifyBoard(std::size_t private_cells)
    // A region has at least one byte; a board may have no cells.
    : private_cells_(new NotifyCell[std::max<std::size_t>(private_cells, 1)]()),
      memory_(MemoryRegion::wrap(private_cells_.get(),
                                 std::max<std::size_t>(private_cells, 1) * sizeof(NotifyCell))
                  .value()),
      size_(private_cells),
      free_{{0, private_cells}} {}

std::size_t NotifyBoard::find(std::size_t from, std::size_t count) const {
  auto block = free_.upper_bound(from);
  if (block != free_.begin()) --block;
  for (; block != free_.end(); ++block) {
    const std::size_t end = block->first + block->second;
    const std::size_t first = std::max(block->first, from);
    if (first <= end && count <= end - first) return first;
  }
  return size_;
}

void NotifyBoard::take(std::size_t first, std::size_t count) {
  const auto block = std::prev(free_.upper_bound(first));
  const auto [begin, length] = *block;
  free_.erase(block);
  if (begin < first) free_.emplace(begin, first - begin);
  if (const std::size_t rest = begin + length - first - count; rest > 0)
    free_.emplace(first + count, rest);
}

std::size_t NotifyBoard::next_used(std::size_t from) const {
  if (memory_->fd() < 0) return from;
  const auto begin = static_cast<off_t>(memory_->fd_offset());
  const off_t found =
      lseek(memory_->fd(), begin + static_cast<off_t>(from * sizeof(NotifyCell)), SEEK_DATA);
  if (found < 0) return size_;  // ENXIO: nothing but holes
  return std::min(static_cast<std::size_t>(found - begin) / sizeof(NotifyCell), size_);
}

void NotifyBoard::clear(std::size_t first, std::size_t count) {
  const std::size_t used = fresh_ > first ? std::min(fresh_ - first, count) : 0;
  if (used >= kLargeBlock)
    return memory_->clear(first * sizeof(NotifyCell), used * sizeof(NotifyCell));
  for (std::size_t i = first; i < first + used; ++i)
    cells()[i].sequence.store(0, std::memory_order_relaxed);
}

Result<NotifyId> NotifyBoard::allocate(std::size_t count) {
  if (count == 0) return NotifyId(0);
  std::size_t first = find(next_, count);
  if (first == size_) first = find(0, count);
  if (first == size_) {
    return Status(Code::kResourceExhausted,
                  fmt::format("no {} adjacent notification cells left of {}", count, size()));
  }
  take(first, count);
  clear(first, count);
  next_ = first + count;
  fresh_ = std::max(fresh_, next_);
  return NotifyId(static_cast<std::uint32_t>(first));
}

void NotifyBoard::free(NotifyId id, std::size_t count) {
  if (count == 0) return;
  auto first = static_cast<std::size_t>(id);
  if (count >= kLargeBlock) clear(first, count);  // gives the pages back
  auto next = free_.lower_bound(first);
  if (next != free_.begin()) {
    if (const auto before = std::prev(next); before->first + before->second == first) {
      first = before->first;
      count += before->second;
      free_.erase(before);
    }
  }
  if (next != free_.end() && first + count == next->first) {
    count += next->second;
    free_.erase(next);
  }
  free_.emplace(first, count);
}

}  // namespace dunlin::transport
