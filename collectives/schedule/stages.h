// Stages: what algorithms are made of. Each adds its steps to the program of one rank, for a team
// and a range of elements.
//
// Ranges index inputs and outputs alike. Where a stage says `from`, that is the buffer with this
// rank's own contribution: the input in the first stage of an algorithm, the output in later ones.
#pragma once

#include <functional>

#include "collectives/schedule/algorithm.h"

namespace dunlin::collective {

// Which elements belong to which member of a team: one block each, at equal distances, or the parts
// of a range.
class Split {
 public:
  static Split parts(Range whole, int parts) { return {whole, parts, 0}; }
  // Block i: [first.begin + i * stride, ... + first.count).
  static Split blocks(Range first, std::size_t stride, int parts) { return {first, parts, stride}; }
  int size() const { return parts_; }
  Range part(int i) const {
    return stride_ == 0 ? part_of(range_, parts_, i)
                        : Range{range_.begin + static_cast<std::size_t>(i) * stride_, range_.count};
  }
  // No part is longer.
  std::size_t longest() const {
    return stride_ == 0 ? longest_part(range_.count, parts_) : range_.count;
  }

 private:
  Split(Range range, int parts, std::size_t stride)
      : range_(range), parts_(parts), stride_(stride) {}
  Range range_;
  int parts_;
  std::size_t stride_;
};

// Around the ring in size() - 1 sends: member i ends with the sum over its part, in `result`.
// Scratch: `slot` elements, at least split.longest() and the same on all members, per step.
class RingReduceScatter {
 public:
  RingReduceScatter(ProgramBuilder& builder, const Team& team, const Split& split, BufferKind from,
                    std::size_t segment, bool finishes, std::size_t slot);
  RingReduceScatter(ProgramBuilder& builder, const Team& team, const Split& split, BufferKind from,
                    std::size_t segment, bool finishes)
      : RingReduceScatter(builder, team, split, from, segment, finishes, split.longest()) {}
  // Where our part goes to; by default its own place in the output.
  void set_result(Place result) { result_ = result; }
  // 0 to team.size() - 1, all in turn. Steps of independent stages may be interleaved.
  void step(int s);
  void run() {
    for (int s = 0; s < team_.size(); ++s) step(s);
  }

 private:
  void segment(int s, std::size_t i);
  Range sent(int s) const { return split_.part(team_.wrapped(team_.index() - s - 1)); }

  ProgramBuilder& builder_;
  Team team_;
  Split split_;
  BufferKind from_;
  std::size_t segment_;
  bool finishes_;
  Place result_;
  std::vector<Place> received_;  // by step
};

// Around the ring: member i's part, which is in its output, reaches everybody's output.
class RingAllGather {
 public:
  RingAllGather(ProgramBuilder& builder, const Team& team, const Split& split, std::size_t segment)
      : builder_(builder), team_(team), split_(split), segment_(segment) {}
  void step(int s);  // 0 to team.size() - 1
  void run() {
    for (int s = 0; s < team_.size(); ++s) step(s);
  }

 private:
  ProgramBuilder& builder_;
  Team team_;
  Split split_;
  std::size_t segment_;
};

// Both: everybody's output holds the sum over the range.
void ring_all_reduce(ProgramBuilder& builder, const Team& team, Range range, BufferKind from,
                     std::size_t segment, bool finishes);

// Binomial tree over a team; `root` is an index in it.
struct Tree {
  Team team;
  int root = 0;
  int relative() const { return team.wrapped(team.index() - root); }
  int rank(int relative_index) const { return team.rank(team.wrapped(relative_index + root)); }
  int parent() const;                 // a rank; kSelf: we are the root
  std::vector<int> children() const;  // nearest first
};
int levels_of(int size);  // ceil(log2(size))

// Sums up to the root's output. Inner members sum in scratch. `asks`: the sender waits until the
// receiver has called for the range.
void tree_reduce(ProgramBuilder& builder, const Tree& tree, Range range, BufferKind from,
                 std::size_t segment, bool finishes, bool asks);
// From the root's output to everybody's. `asks`: as above.
void tree_broadcast(ProgramBuilder& builder, const Tree& tree, Range range, std::size_t segment,
                    bool asks);

// Everybody signals everybody; returns when all have.
void signal_all(ProgramBuilder& builder, const Team& team);

// Calls `slice` for one range after the other, which together are `whole`, so that the scratch that
// each of them takes, at most `per_element` times its count and `fixed`, fits into the shape's.
// With too little scratch for that, programs take more than the shape has.
void for_each_slice(ProgramBuilder& builder, Range whole, std::size_t per_element,
                    std::size_t fixed, const Shape& shape, const std::function<void(Range)>& slice);

}  // namespace dunlin::collective
