#include "collectives/schedule/all_reduce.h"

#include <algorithm>
#include <bit>

#include "collectives/schedule/stages.h"

namespace dunlin::collective::all_reduce {
namespace {

// Elements of scratch that aligning a place to a cache line may take.
constexpr std::size_t kRounding = 64;

std::size_t fixed_for(int places) {
  return kRounding * static_cast<std::size_t>(places + 1);
}

Team all_ranks(const Problem& problem, int rank) {
  return {0, 1, problem.size, rank};
}

// Reduces the number of ranks that exchange data to a power of two. The first ranks form pairs. The
// odd rank of a pair sends its vector to the even one in the constructor, which then acts for both.
// unfold() sends the result back.
class Fold {
 public:
  Fold(ProgramBuilder& builder, const Problem& problem, Range range)
      : builder_(builder),
        range_(range),
        folded_(problem.size -
                static_cast<int>(std::bit_floor(static_cast<unsigned>(problem.size)))) {
    const int rank = builder.rank();
    received_ = builder.scratch(folded_ > 0 ? range.count : 0);
    sum_ = builder.scratch(folded_ > 0 ? range.count : 0);
    is_in_pair_ = rank < 2 * folded_;
    if (is_in_pair_ && rank % 2 == 1) {
      index_ = kSelf;
      builder.put(input_at(range.begin), rank - 1, received_, range.count);
      return;
    }
    index_ = is_in_pair_ ? rank / 2 : rank - folded_;
    if (!is_in_pair_) return;
    builder.wait(rank + 1, received_, range.count);
    const Place inputs[] = {input_at(range.begin), received_};
    builder.reduce(inputs, {&sum_, 1}, range.count);
  }

  int size() const { return builder_.size() - folded_; }
  bool takes_part() const { return index_ != kSelf; }
  int index() const { return index_; }
  int rank(int index) const { return index < folded_ ? 2 * index : index + folded_; }
  // This rank's vector before the first exchange.
  Place own(std::size_t offset) const {
    if (!is_in_pair_) return input_at(offset);
    return {sum_.buffer, sum_.offset + offset - range_.begin, kSelf};
  }
  void unfold() {
    if (!is_in_pair_) return;
    const Place place = output_at(range_.begin);
    if (takes_part()) {
      builder_.put(place, builder_.rank() + 1, place, range_.count);
    } else {
      builder_.wait(builder_.rank() - 1, place, range_.count);
    }
  }

 private:
  ProgramBuilder& builder_;
  Range range_;
  int folded_;
  bool is_in_pair_ = false;
  int index_ = kSelf;
  Place received_;
  Place sum_;
};

}  // namespace

Program direct(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const auto size = static_cast<std::size_t>(problem.size);
  for_each_slice(builder, {0, problem.count}, size, fixed_for(problem.size), shape,
                 [&](Range slice) {
                   std::vector<Place> inputs;
                   for (std::size_t i = 0; i < size; ++i)
                     inputs.push_back(builder.scratch(slice.count));
                   const Team team = all_ranks(problem, rank);
                   const Place slot = inputs[static_cast<std::size_t>(rank)];
                   for (int i = 1; i < team.size(); ++i) {
                     const int peer = team.rank(team.wrapped(rank + i));
                     builder.put(input_at(slice.begin), peer, slot, slice.count);
                   }
                   inputs[static_cast<std::size_t>(rank)] = input_at(slice.begin);
                   for (int i = 1; i < team.size(); ++i) {
                     const int peer = team.rank(team.wrapped(rank - i));
                     builder.wait(peer, inputs[static_cast<std::size_t>(peer)], slice.count);
                   }
                   builder.drain();  // the output may be the input, which puts still read
                   const Place sum = output_at(slice.begin);
                   builder.reduce(inputs, {&sum, 1}, slice.count, true);
                 });
  return builder.take();
}

Program shared(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const Team team = all_ranks(problem, rank);
  signal_all(builder, team);
  if (!shape.is_one_gpu || rank == 0) {
    const Range whole{0, problem.count};
    const Range part = shape.is_one_gpu ? whole : part_of(whole, problem.size, rank);
    std::vector<Place> inputs;
    std::vector<Place> outputs;
    for (int peer = 0; peer < problem.size; ++peer) {
      inputs.push_back(input_at(part.begin, peer));
      outputs.push_back(output_at(part.begin, peer));
    }
    builder.reduce(inputs, outputs, part.count, true);
  }
  signal_all(builder, team);
  return builder.take();
}

Program recursive_doubling(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const int levels = levels_of(problem.size);
  const auto per_element = static_cast<std::size_t>(2 * levels + 2);
  for_each_slice(
      builder, {0, problem.count}, per_element, fixed_for(2 * levels + 2), shape, [&](Range slice) {
        Fold fold(builder, problem, slice);
        // The peer still reads what was put, so each level writes its sum to another place.
        Place sum = fold.own(slice.begin);
        for (int bit = 1; bit < fold.size(); bit *= 2) {
          const Place received = builder.scratch(slice.count);
          const Place next =
              2 * bit < fold.size() ? builder.scratch(slice.count) : output_at(slice.begin);
          if (!fold.takes_part()) continue;
          const int peer = fold.rank(fold.index() ^ bit);
          builder.put(sum, peer, received, slice.count);
          builder.wait(peer, received, slice.count);
          const bool is_last = 2 * bit >= fold.size();
          if (is_last) builder.drain();  // the output may be the input, which puts still read
          const Place inputs[] = {sum, received};
          builder.reduce(inputs, {&next, 1}, slice.count, is_last);
          sum = next;
        }
        fold.unfold();
      });
  return builder.take();
}

Program halving_doubling(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const auto halves_of = [](Range range, bool upper) { return part_of(range, 2, upper ? 1 : 0); };
  for_each_slice(builder, {0, problem.count}, 4, 8 * fixed_for(2 * levels_of(problem.size)), shape,
                 [&](Range slice) {
                   Fold fold(builder, problem, slice);
                   // Halving: each level sums and keeps one half, which a bit of our index selects.
                   std::vector<Range> kept{slice};
                   Range longest = slice;
                   Place own = fold.own(slice.begin);
                   for (int bit = 1; bit < fold.size(); bit *= 2) {
                     longest = {0, longest.count / 2 + 2 * kRounding};
                     const Place received = builder.scratch(longest.count);
                     const bool is_last = 2 * bit >= fold.size();
                     const Place scratch_sum = builder.scratch(is_last ? 0 : longest.count);
                     if (!fold.takes_part()) continue;
                     const bool is_upper = (fold.index() & bit) != 0;
                     const Range whole = kept.back();
                     const Range ours = halves_of(whole, is_upper);
                     const Range theirs = halves_of(whole, !is_upper);
                     const int peer = fold.rank(fold.index() ^ bit);
                     const auto at = [&](const Range& range) {
                       return Place{own.buffer, own.offset + range.begin - whole.begin, kSelf};
                     };
                     builder.put(at(theirs), peer, received, theirs.count);
                     builder.wait(peer, received, ours.count);
                     const Place sum = is_last ? output_at(ours.begin) : scratch_sum;
                     const Place inputs[] = {at(ours), received};
                     builder.reduce(inputs, {&sum, 1}, ours.count, is_last);
                     own = sum;
                     kept.push_back(ours);
                   }
                   // Doubling: the same exchanges in reverse order.
                   for (int bit = fold.size() / 2; bit >= 1 && fold.takes_part(); bit /= 2) {
                     const Range ours = kept.back();
                     kept.pop_back();
                     const Range theirs = halves_of(kept.back(), (fold.index() & bit) == 0);
                     const int peer = fold.rank(fold.index() ^ bit);
                     builder.put(output_at(ours.begin), peer, output_at(ours.begin), ours.count);
                     builder.wait(peer, output_at(theirs.begin), theirs.count);
                   }
                   fold.unfold();
                 });
  return builder.take();
}

Program tree(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const Tree tree{all_ranks(problem, rank), 0};
  const int levels = levels_of(problem.size);
  for_each_slice(builder, {0, problem.count}, static_cast<std::size_t>(levels) + 1,
                 fixed_for(levels + 1), shape, [&](Range slice) {
                   tree_reduce(builder, tree, slice, BufferKind::kInput, shape.segment, true,
                               false);
                   tree_broadcast(builder, tree, slice, shape.segment, false);
                 });
  return builder.take();
}

Program ring(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  for_each_slice(builder, {0, problem.count}, 1, 2 * fixed_for(problem.size), shape,
                 [&](Range slice) {
                   ring_all_reduce(builder, all_ranks(problem, rank), slice, BufferKind::kInput,
                                   shape.segment, true);
                 });
  return builder.take();
}

namespace {

// All-reduce within each group, then `among_leaders`, then broadcast within each group.
template <typename AmongLeaders>
Program by_groups(const Problem& problem, const Shape& shape, int rank,
                  AmongLeaders&& among_leaders) {
  ProgramBuilder builder(rank, problem.size);
  const Grouping& groups = *shape.groups;
  const Team team = groups.team_of(rank);
  const bool is_last_stage = groups.groups() == 1;
  for_each_slice(builder, {0, problem.count}, 3, 8 * fixed_for(problem.size), shape,
                 [&](Range slice) {
                   BufferKind from = BufferKind::kInput;
                   // Groups of different sizes take different amounts of scratch, but the leaders'
                   // places must be equal on all leaders: take them first.
                   const Place leaders_scratch =
                       builder.scratch(2 * slice.count + fixed_for(4 * problem.size));
                   if (team.size() > 1) {
                     ring_all_reduce(builder, team, slice, from, shape.segment, is_last_stage);
                     from = BufferKind::kOutput;
                   }
                   if (is_last_stage) return;
                   // The next stage overwrites the group's sums, so their puts must have completed.
                   if (team.size() > 1) builder.drain();
                   if (groups.is_leader(rank)) {
                     builder.rewind_scratch(leaders_scratch);
                     among_leaders(builder, slice, from);
                   }
                   if (team.size() > 1)
                     tree_broadcast(builder, {team, 0}, slice, shape.segment, true);
                 });
  return builder.take();
}

// Reduce-scatter along `across`, then `within` with this rank's part, then all-gather along
// `across`.
template <typename Within>
void around(ProgramBuilder& builder, const Team& across, Range range, BufferKind from,
            std::size_t segment, bool finishes, Within&& within) {
  const Split split = Split::parts(range, across.size());
  if (across.size() > 1) {
    RingReduceScatter(builder, across, split, from, segment, finishes).run();
    from = BufferKind::kOutput;
  }
  within(split.part(across.index()), from);
  if (across.size() > 1) RingAllGather(builder, across, split, segment).run();
}

// The teams of a row and of a column of a grid that is numbered row by row.
struct Cross {
  Team row;
  Team column;
};
Cross cross_of(const Grid& grid, int index) {
  const int r = index / grid.columns;
  const int c = index % grid.columns;
  return {{r * grid.columns, 1, grid.columns, c}, {c, grid.columns, grid.rows, r}};
}

// Runs the steps of independent stages in turn: step 0 of each, then step 1 of each, and so on.
template <typename Stage>
void interleave(std::vector<Stage>& stages) {
  int longest = 0;
  for (const Stage& stage : stages) longest = std::max(longest, stage.steps());
  for (int s = 0; s < longest; ++s) {
    for (Stage& stage : stages) {
      if (s < stage.steps()) stage.step(s);
    }
  }
}

// All-reduce of one slice over a grid. One half of the slice is reduced along the rows and then
// along the columns, the other half along the columns and then along the rows, both at the same
// time.
class Mesh {
 public:
  Mesh(ProgramBuilder& builder, const Cross& cross, Range slice, std::size_t segment)
      : builder_(builder),
        segment_(segment),
        halves_{Half(part_of(slice, 2, 0), cross.row, cross.column),
                Half(part_of(slice, 2, 1), cross.column, cross.row)} {}

  void run() {
    reduce_scatter(kOuter);
    reduce_scatter(kInner);
    all_gather(kInner);
    all_gather(kOuter);
  }

 private:
  // The outer level divides a half among the first team; the inner level divides this rank's part
  // of it among the second team.
  enum Level { kOuter, kInner };
  struct Half {
    Half(Range range, const Team& first, const Team& second)
        : teams{first, second},
          splits{Split::parts(range, first.size()),
                 Split::parts(part_of(range, first.size(), first.index()), second.size())} {}

    Team teams[2];    // by level
    Split splits[2];  // by level
    BufferKind from = BufferKind::kInput;
  };

  void reduce_scatter(Level level) {
    std::vector<RingReduceScatter> stages;
    for (Half& half : halves_) {
      const Team& team = half.teams[level];
      if (team.size() == 1) continue;
      const std::size_t longest = half.splits[kOuter].longest();
      // Inner parts differ in length between the ranks of a team, but their slots must not.
      const std::size_t slot = level == kOuter ? longest : longest_part(longest, team.size());
      const bool finishes = level == kInner || half.teams[kInner].size() == 1;
      stages.emplace_back(builder_, team, half.splits[level], half.from, segment_, finishes, slot);
      half.from = BufferKind::kOutput;
    }
    interleave(stages);
  }

  void all_gather(Level level) {
    std::vector<RingAllGather> stages;
    for (const Half& half : halves_) {
      const Team& team = half.teams[level];
      if (team.size() > 1) stages.emplace_back(builder_, team, half.splits[level], segment_);
    }
    interleave(stages);
  }

  ProgramBuilder& builder_;
  std::size_t segment_;
  Half halves_[2];
};

}  // namespace

Program hierarchical(const Problem& problem, const Shape& shape, int rank) {
  const Grouping& groups = *shape.groups;
  return by_groups(problem, shape, rank,
                   [&](ProgramBuilder& builder, Range slice, BufferKind from) {
                     const Team leaders(groups.leaders(), groups.group_of(rank));
                     ring_all_reduce(builder, leaders, slice, from, shape.segment, true);
                   });
}

Program torus(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const Grid grid = shape.torus(problem.size);
  const Cross cross = cross_of(grid, rank);
  for_each_slice(
      builder, {0, problem.count}, 2, 4 * fixed_for(problem.size), shape, [&](Range slice) {
        around(builder, cross.row, slice, BufferKind::kInput, shape.segment, grid.rows == 1,
               [&](Range part, BufferKind from) {
                 if (grid.rows > 1) {
                   ring_all_reduce(builder, cross.column, part, from, shape.segment, true);
                 }
               });
      });
  return builder.take();
}

Program mesh(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const Grid grid = shape.grid.rows > 0 ? shape.grid : Grid::squarest(problem.size);
  const Cross cross = cross_of(grid, rank);
  for_each_slice(builder, {0, problem.count}, 2, 8 * fixed_for(problem.size), shape,
                 [&](Range slice) { Mesh(builder, cross, slice, shape.segment).run(); });
  return builder.take();
}

Program two_d_tga(const Problem& problem, const Shape& shape, int rank) {
  const Grouping& groups = *shape.groups;
  const Grid grid = shape.grid.rows > 0 ? shape.grid : Grid::squarest(groups.groups());
  return by_groups(
      problem, shape, rank, [&](ProgramBuilder& builder, Range slice, BufferKind from) {
        const int leader = groups.group_of(rank);
        const std::span<const int> leaders = groups.leaders();
        // The leaders in this leader's row and in its column.
        std::vector<int> row;
        std::vector<int> column;
        for (int i = 0; i < grid.columns; ++i)
          row.push_back(
              leaders[static_cast<std::size_t>(leader / grid.columns * grid.columns + i)]);
        for (int i = 0; i < grid.rows; ++i)
          column.push_back(
              leaders[static_cast<std::size_t>(i * grid.columns + leader % grid.columns)]);
        const Team across(row, leader % grid.columns);
        const Team down(column, leader / grid.columns);
        around(builder, across, slice, from, shape.segment, grid.rows == 1,
               [&](Range part, BufferKind reduced) {
                 if (grid.rows > 1) {
                   ring_all_reduce(builder, down, part, reduced, shape.segment, true);
                 }
               });
      });
}

}  // namespace dunlin::collective::all_reduce
