#include "transports/notification.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::transport {

Result<std::unique_ptr<NotifyBoard>> NotifyBoard::create(std::size_t cells) {
  MemoryRegion::Options options;
  options.name = "dunlin-board";
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
      used_(private_cells) {}

bool NotifyBoard::is_free(std::size_t first, std::size_t count) const {
  return std::none_of(used_.begin() + static_cast<std::ptrdiff_t>(first),
                      used_.begin() + static_cast<std::ptrdiff_t>(first + count),
                      [](bool is_used) { return is_used; });
}

Result<NotifyId> NotifyBoard::allocate(std::size_t count) {
  for (std::size_t tried = 0; count <= size() && tried <= size(); ++tried, ++next_) {
    if (next_ > size() - count) next_ = 0;
    if (!is_free(next_, count)) continue;
    const std::size_t first = next_;
    for (std::size_t i = first; i < first + count; ++i) {
      used_[i] = true;
      cells()[i].sequence.store(0, std::memory_order_relaxed);
    }
    next_ += count;
    return NotifyId(static_cast<std::uint32_t>(first));
  }
  return Status(Code::kResourceExhausted,
                fmt::format("no {} adjacent notification cells left of {}", count, size()));
}

void NotifyBoard::free(NotifyId first, std::size_t count) {
  const auto begin = static_cast<std::size_t>(first);
  std::fill_n(used_.begin() + static_cast<std::ptrdiff_t>(begin), count, false);
}

}  // namespace dunlin::transport
