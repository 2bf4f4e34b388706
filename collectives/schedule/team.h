// Teams: the ranks that take part in a stage of a collective, and how ranks are divided into them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/status.h"

namespace dunlin::collective {

// Some ranks in an order, with this rank's index among them. The ranks are either first,
// first + stride, ..., or a list, which must outlive the team.
class Team {
 public:
  Team(int first, int stride, int size, int index)
      : first_(first), stride_(stride), size_(size), index_(index) {}
  Team(std::span<const int> ranks, int index)
      : ranks_(ranks.data()), size_(static_cast<int>(ranks.size())), index_(index) {}

  int size() const { return size_; }
  int index() const { return index_; }  // of this rank
  int rank(int index) const { return ranks_ ? ranks_[index] : first_ + index * stride_; }
  int wrapped(int index) const { return (index % size_ + size_) % size_; }
  int next() const { return rank(wrapped(index_ + 1)); }
  int previous() const { return rank(wrapped(index_ - 1)); }

 private:
  const int* ranks_ = nullptr;
  int first_ = 0;
  int stride_ = 1;
  int size_;
  int index_;
};

// rows * columns == size. squarest() makes the difference of the two smallest, rows <= columns.
struct Grid {
  int rows = 1;
  int columns = 1;
  static Grid squarest(int size);
};

// A partition of the ranks into groups. A group's leader is its lowest rank (2D-TGA, section 3).
// The ranks of a group are in ascending order.
class Grouping {
 public:
  // Makes `groups` groups of consecutive ranks, as equal in size as possible. Returns
  // kInvalidArgument unless 1 <= groups <= size.
  static Result<Grouping> even(int size, int groups);
  // Ranks with the same number form a group; group_of[r] is the number of rank r (its host's, say).
  static Grouping of(std::span<const int> group_of);

  int groups() const { return static_cast<int>(begins_.size()) - 1; }
  int size() const { return static_cast<int>(members_.size()); }
  int group_of(int rank) const { return group_of_[static_cast<std::size_t>(rank)]; }
  std::span<const int> members(int group) const;
  int leader(int group) const { return members(group).front(); }
  bool is_leader(int rank) const { return leader(group_of(rank)) == rank; }
  // The members of rank's group as a team.
  Team team_of(int rank) const;
  // The groups as the rows of a grid that is numbered row by row. Empty unless there are several
  // groups, of consecutive ranks, and all have the same number of ranks, two at least.
  std::optional<Grid> as_grid() const;
  // The leaders in the order of their groups.
  std::span<const int> leaders() const { return leaders_; }

 private:
  std::vector<int> group_of_;
  std::vector<int> index_of_;  // of each rank in its group
  std::vector<int> members_;   // group by group
  std::vector<std::size_t> begins_;
  std::vector<int> leaders_;
};

}  // namespace dunlin::collective
