#include "transports/verbs/path/cell_numbers.h"

#include <algorithm>
#include <bit>

namespace dunlin::transport::verbs {
namespace {

// Enough for the cells that a communicator and a few channels use at one peer.
constexpr std::size_t kFirstBuckets = 16;

}  // namespace

SentCells::Cell& SentCells::give_number(std::uint32_t cell) {
  std::uint16_t number = oldest_;
  if (cells_.size() < kCellNumbers) {
    number = static_cast<std::uint16_t>(cells_.size());
    cells_.emplace_back();
    if (cells_.size() > buckets_.size()) grow();
  } else {
    unlink(number);
    oldest_ = static_cast<std::uint16_t>((oldest_ + 1U) % kCellNumbers);
  }
  cells_[number] = {.cell = cell, .number = number};
  link(number);
  return cells_[number];
}

void SentCells::link(std::uint16_t number) {
  std::uint16_t& first = buckets_[bucket_of(cells_[number].cell)];
  cells_[number].next = first;
  first = number;
}

void SentCells::unlink(std::uint16_t number) {
  std::uint16_t* at = &buckets_[bucket_of(cells_[number].cell)];
  while (*at != number) at = &cells_[*at].next;
  *at = cells_[number].next;
}

void SentCells::grow() {
  buckets_.assign(std::max(kFirstBuckets, 2 * buckets_.size()), kNone);
  shift_ = 32 - std::countr_zero(buckets_.size());
  for (std::size_t number = 0; number + 1 < cells_.size(); ++number)
    link(static_cast<std::uint16_t>(number));
}

void SentCells::doubt() {
  for (Cell& cell : cells_) cell.is_known = false;
}

void SentCells::clear() {
  *this = SentCells();
}

}  // namespace dunlin::transport::verbs
