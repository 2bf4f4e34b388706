#include "collectives/schedule/all_reduce.h"

#include <bit>

#include "collectives/schedule/stages.h"

namespace dunlin::collective::all_reduce {
namespace {

// Scratch that rounding up to whole cache lines may cost, per place that is handed out.
constexpr std::size_t kRounding = 64;

std::size_t fixed_for(int places) {
  return kRounding * static_cast<std::size_t>(places + 1);
}

Team everybody(const Problem& problem, int rank) {
  return {0, 1, problem.size, rank};
}

// Folds a team of any size to a power of two: of the first pairs, the odd one hands its vector to
// the even one before, and is handed the result after.
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
  // Our vector before the first exchange.
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
                   const Team team = everybody(problem, rank);
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
                   builder.drain();  // the output may be the input, which is being sent
                   const Place sum = output_at(slice.begin);
                   builder.reduce(inputs, {&sum, 1}, slice.count, true);
                 });
  return builder.take();
}

Program shared(const Problem& problem, const Shape&, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const Team team = everybody(problem, rank);
  signal_all(builder, team);
  const Range part = part_of({0, problem.count}, problem.size, rank);
  std::vector<Place> inputs;
  std::vector<Place> outputs;
  for (int peer = 0; peer < problem.size; ++peer) {
    inputs.push_back(input_at(part.begin, peer));
    outputs.push_back(output_at(part.begin, peer));
  }
  builder.reduce(inputs, outputs, part.count, true);
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
        // What is sent must stay as it is until the partner has it: each level sums elsewhere.
        Place sum = fold.own(slice.begin);
        for (int bit = 1; bit < fold.size(); bit *= 2) {
          const Place received = builder.scratch(slice.count);
          const Place next =
              2 * bit < fold.size() ? builder.scratch(slice.count) : output_at(slice.begin);
          if (!fold.takes_part()) continue;
          const int partner = fold.rank(fold.index() ^ bit);
          builder.put(sum, partner, received, slice.count);
          builder.wait(partner, received, slice.count);
          const bool is_last = 2 * bit >= fold.size();
          if (is_last) builder.drain();  // the output may be the input, which is being sent
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
                   // Halving: each level keeps the half that our index's bit says, and sums it up.
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
                     const int partner = fold.rank(fold.index() ^ bit);
                     const auto at = [&](const Range& range) {
                       return Place{own.buffer, own.offset + range.begin - whole.begin, kSelf};
                     };
                     builder.put(at(theirs), partner, received, theirs.count);
                     builder.wait(partner, received, ours.count);
                     const Place sum = is_last ? output_at(ours.begin) : scratch_sum;
                     const Place inputs[] = {at(ours), received};
                     builder.reduce(inputs, {&sum, 1}, ours.count, is_last);
                     own = sum;
                     kept.push_back(ours);
                   }
                   // Doubling: the same way back.
                   for (int bit = fold.size() / 2; bit >= 1 && fold.takes_part(); bit /= 2) {
                     const Range ours = kept.back();
                     kept.pop_back();
                     const Range theirs = halves_of(kept.back(), (fold.index() & bit) == 0);
                     const int partner = fold.rank(fold.index() ^ bit);
                     builder.put(output_at(ours.begin), partner, output_at(ours.begin), ours.count);
                     builder.wait(partner, output_at(theirs.begin), theirs.count);
                   }
                   fold.unfold();
                 });
  return builder.take();
}

Program tree(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const Tree tree{everybody(problem, rank), 0};
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
                   ring_all_reduce(builder, everybody(problem, rank), slice, BufferKind::kInput,
                                   shape.segment, true);
                 });
  return builder.take();
}

namespace {

// All-reduce within each group, then what `among_leaders` does, then broadcast within each group.
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
                   // Groups may differ in size, and so in what they take: the leaders' scratch
                   // comes first.
                   const Place leaders_scratch =
                       builder.scratch(2 * slice.count + fixed_for(4 * problem.size));
                   if (team.size() > 1) {
                     ring_all_reduce(builder, team, slice, from, shape.segment, is_last_stage);
                     from = BufferKind::kOutput;
                   }
                   if (is_last_stage) return;
                   // The group's sums are about to be overwritten: they must have left.
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

// Reduce-scatter along `across`, what `within` does with the part, all-gather along `across`.
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

// The place of an index in a grid, row by row: the teams of its row and of its column.
struct Cross {
  Team row;
  Team column;
};
Cross cross_of(const Grid& grid, int index) {
  const int r = index / grid.columns;
  const int c = index % grid.columns;
  return {{r * grid.columns, 1, grid.columns, c}, {c, grid.columns, grid.rows, r}};
}

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
  const Grid grid = shape.grid.rows > 0 ? shape.grid : Grid::squarest(problem.size);
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
  for_each_slice(
      builder, {0, problem.count}, 2, 8 * fixed_for(problem.size), shape, [&](Range slice) {
        // One half goes along the rows first, the other along the columns: both at the same time.
        struct Half {
          Team first;
          Team second;
          Split outer;
          Split inner;
          BufferKind from = BufferKind::kInput;
        };
        std::vector<Half> halves;
        for (int i = 0; i < 2; ++i) {
          const Team& first = i == 0 ? cross.row : cross.column;
          const Team& second = i == 0 ? cross.column : cross.row;
          const Split outer = Split::parts(part_of(slice, 2, i), first.size());
          halves.push_back(
              {first, second, outer, Split::parts(outer.part(first.index()), second.size())});
        }
        const auto interleave = [](auto& stages, int steps) {
          for (int s = 0; s < steps; ++s) {
            for (auto& [stage, length] : stages) {
              if (s < length) stage.step(s);
            }
          }
        };
        const int longest = std::max(grid.rows, grid.columns);
        for (const bool is_outer : {true, false}) {
          std::vector<std::pair<RingReduceScatter, int>> stages;
          for (Half& half : halves) {
            const Team& team = is_outer ? half.first : half.second;
            // The inner parts differ in length along the other half's teams, their slots must not.
            const std::size_t slot =
                is_outer ? half.outer.longest() : longest_part(half.outer.longest(), team.size());
            const bool finishes = !is_outer || half.second.size() == 1;
            if (team.size() == 1) continue;
            stages.emplace_back(RingReduceScatter(builder, team, is_outer ? half.outer : half.inner,
                                                  half.from, shape.segment, finishes, slot),
                                team.size());
            half.from = BufferKind::kOutput;
          }
          interleave(stages, longest);
        }
        for (const bool is_outer : {false, true}) {
          std::vector<std::pair<RingAllGather, int>> stages;
          for (Half& half : halves) {
            const Team& team = is_outer ? half.first : half.second;
            if (team.size() == 1) continue;
            stages.emplace_back(
                RingAllGather(builder, team, is_outer ? half.outer : half.inner, shape.segment),
                team.size());
          }
          interleave(stages, longest);
        }
      });
  return builder.take();
}

Program two_d_tga(const Problem& problem, const Shape& shape, int rank) {
  const Grouping& groups = *shape.groups;
  const Grid grid = shape.grid.rows > 0 ? shape.grid : Grid::squarest(groups.groups());
  return by_groups(
      problem, shape, rank, [&](ProgramBuilder& builder, Range slice, BufferKind from) {
        const int leader = groups.group_of(rank);
        const std::span<const int> leaders = groups.leaders();
        // The ranks of our row and of our column of leaders.
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
