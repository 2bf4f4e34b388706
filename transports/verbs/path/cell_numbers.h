// Numbers for cells: how the immediate of a short notification names its cell.
//
// A board may have more cells than an immediate has room for, and a lane notifies only a few of
// them. So a lane numbers the cells that it notifies, in the order of their first use. The record
// of a notification says which number its cell has from then on; a short notification then names
// the cell by this number. Both ends remember the last notification of each numbered cell, from
// which a short one counts on.
//
// When all numbers are taken, the one that was given longest ago goes to the next new cell. So the
// memory of either end grows with the cells that the lane uses, and never beyond kCellNumbers. The
// ends agree because the receiver takes the notifications of a lane in the order in which the
// sender has numbered them. Owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transports/notification.h"
#include "transports/verbs/connect/wire.h"

namespace dunlin::transport::verbs {

// The sender's table of numbers.
class SentCells {
 public:
  // How a notification travels: in the short form if it has one, otherwise in a record that gives
  // its cell this number.
  struct Spelling {
    std::uint16_t number;
    std::optional<ShortForm> short_form;
  };
  // Adds a notification to those that the peer will know. It announces `bytes` bytes. A
  // notification that has a short form may travel in a record all the same.
  Spelling add(const Notification& notification, std::uint64_t bytes) {
    Cell& cell = find(static_cast<std::uint32_t>(notification.id));
    Spelling spelling{cell.number, std::nullopt};
    if (cell.is_known)
      spelling.short_form = ShortForm::of(notification, cell.number, cell.last, bytes);
    cell.last = {notification.sequence, notification.tag};
    cell.is_known = true;
    return spelling;
  }
  // The peer may not know the last notifications: the next ones need records.
  void doubt();
  // Forgets the numbers, and frees the memory.
  void clear();
  std::size_t size() const { return cells_.size(); }

 private:
  struct Cell {
    CellState last{};        // the last notification, if is_known
    std::uint32_t cell = 0;  // its index on the peer's board
    std::uint16_t number = 0;
    std::uint16_t next = 0;  // number of the next cell in the same bucket, or kNone
    bool is_known = false;   // whether the peer will know `last` by then
  };
  static constexpr std::uint16_t kNone = UINT16_MAX;
  static_assert(kCellNumbers < kNone);

  std::size_t bucket_of(std::uint32_t cell) const {
    return cell * 0x9e3779b1U >> shift_;  // Fibonacci hashing: adjacent cells spread
  }
  // Returns the cell's entry, under a new number if it has none. Valid until the next call.
  Cell& find(std::uint32_t cell) {
    if (!buckets_.empty()) {
      for (std::uint16_t at = buckets_[bucket_of(cell)]; at != kNone; at = cells_[at].next) {
        if (cells_[at].cell == cell) return cells_[at];
      }
    }
    return give_number(cell);
  }
  Cell& give_number(std::uint32_t cell);
  void link(std::uint16_t number);
  void unlink(std::uint16_t number);
  // Makes the buckets at least as many as the cells.
  void grow();

  std::vector<Cell> cells_;             // by number
  std::vector<std::uint16_t> buckets_;  // number of the first cell in each, or kNone
  int shift_ = 0;
  std::uint16_t oldest_ = 0;  // the number to be given away next, when all are taken
};

// The receiver's table of numbers.
class TakenCells {
 public:
  // The notification that the short one of `bytes` bytes stands for; nothing if its number has no
  // cell.
  std::optional<Notification> expand(const ShortForm& form, std::uint32_t bytes) const {
    if (form.number >= cells_.size() || !cells_[form.number].is_named) return std::nullopt;
    const Cell& named = cells_[form.number];
    return Notification{NotifyId{named.cell},
                        named.last.sequence + form.step,
                        named.last.tag,
                        form.counts_bytes ? bytes : 0,
                        {}};
  }
  // The number has this notification's cell now, and this is its last notification.
  void note(std::uint16_t number, const Notification& notification) {
    if (number >= cells_.size()) cells_.resize(std::size_t{number} + 1);
    cells_[number] = {{notification.sequence, notification.tag},
                      static_cast<std::uint32_t>(notification.id),
                      true};
  }
  // The number has a cell that this end does not have. What counts on from it is dropped, too.
  void unname(std::uint16_t number) {
    if (number < cells_.size()) cells_[number].is_named = false;
  }
  void clear() {
    cells_.clear();
    cells_.shrink_to_fit();
  }
  std::size_t size() const { return cells_.size(); }

 private:
  struct Cell {
    CellState last{};
    std::uint32_t cell = 0;
    bool is_named = false;
  };
  std::vector<Cell> cells_;  // by number
};

}  // namespace dunlin::transport::verbs
