#include "collectives/schedule/team.h"

#include <fmt/format.h>

#include <map>

namespace dunlin::collective {

Result<Grouping> Grouping::even(int size, int groups) {
  if (groups < 1 || groups > size) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} ranks cannot form {} groups", size, groups));
  }
  std::vector<int> group_of(static_cast<std::size_t>(size));
  for (std::size_t rank = 0; rank < group_of.size(); ++rank) {
    // The first size % groups groups have one member more.
    const auto shorter = static_cast<std::size_t>(size / groups);
    const auto longer = static_cast<std::size_t>(size % groups);
    const std::size_t boundary = longer * (shorter + 1);
    group_of[rank] = static_cast<int>(rank < boundary ? rank / (shorter + 1)
                                                      : longer + (rank - boundary) / shorter);
  }
  return of(group_of);
}

Grouping Grouping::of(std::span<const int> group_of) {
  Grouping grouping;
  std::map<int, int> number_of;  // groups are numbered in the order of their lowest ranks
  std::vector<std::vector<int>> groups;
  for (std::size_t rank = 0; rank < group_of.size(); ++rank) {
    const auto [found, is_new] =
        number_of.try_emplace(group_of[rank], static_cast<int>(groups.size()));
    if (is_new) groups.emplace_back();
    auto& group = groups[static_cast<std::size_t>(found->second)];
    grouping.group_of_.push_back(found->second);
    grouping.index_of_.push_back(static_cast<int>(group.size()));
    group.push_back(static_cast<int>(rank));
  }
  grouping.begins_.push_back(0);
  for (const auto& group : groups) {
    grouping.members_.insert(grouping.members_.end(), group.begin(), group.end());
    grouping.begins_.push_back(grouping.members_.size());
    grouping.leaders_.push_back(group.front());
  }
  return grouping;
}

std::span<const int> Grouping::members(int group) const {
  const auto index = static_cast<std::size_t>(group);
  return std::span(members_).subspan(begins_[index], begins_[index + 1] - begins_[index]);
}

Team Grouping::team_of(int rank) const {
  return {members(group_of(rank)), index_of_[static_cast<std::size_t>(rank)]};
}

std::optional<Grid> Grouping::as_grid() const {
  const Grid grid{groups(), size() / std::max(groups(), 1)};
  if (grid.rows < 2 || grid.columns < 2 || grid.rows * grid.columns != size()) return std::nullopt;
  for (int rank = 0; rank < size(); ++rank) {
    if (group_of(rank) != rank / grid.columns) return std::nullopt;
  }
  return grid;
}

Grid Grid::squarest(int size) {
  Grid grid{1, size};
  for (int rows = 2; rows <= size / rows; ++rows) {
    if (size % rows == 0) grid = {rows, size / rows};
  }
  return grid;
}

}  // namespace dunlin::collective
