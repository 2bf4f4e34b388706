// Stages: the building blocks of algorithms. A stage adds steps to the program of one rank, for a
// team and a range of elements.
//
// A range applies to inputs and outputs alike. `from` names the buffer with this rank's own
// contribution: the input in the first stage of an algorithm, the output in later ones.
#pragma once

#include <functional>

#include "collectives/schedule/algorithm.h"

namespace dunlin::collective {

// Assigns elements to the members of a team: either one block each, at equal distances, or the
// parts of a range.
class Split {
 public:
  static Split parts(Range whole, int parts) { return {whole, parts, 0}; }
  // Block i is [first.begin + i * stride, first.begin + i * stride + first.count).
  static Split blocks(Range first, std::size_t stride, int parts) { return {first, parts, stride}; }
  int size() const { return parts_; }
  Range part(int i) const {
    return stride_ == 0 ? part_of(range_, parts_, i)
                        : Range{range_.begin + static_cast<std::size_t>(i) * stride_, range_.count};
  }
  // Upper bound on the length of a part.
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

// Reduce-scatter around a ring, in size() - 1 messages per member. Afterwards member i has the sum
// of its part at `result`. Uses `slot` elements of scratch per step; `slot` is at least
// split.longest() and the same on all members.
class RingReduceScatter {
 public:
  RingReduceScatter(ProgramBuilder& builder, const Team& team, const Split& split, BufferKind from,
                    std::size_t segment, bool finishes, std::size_t slot);
  RingReduceScatter(ProgramBuilder& builder, const Team& team, const Split& split, BufferKind from,
                    std::size_t segment, bool finishes)
      : RingReduceScatter(builder, team, split, from, segment, finishes, split.longest()) {}
  // Sets where this rank's part goes. Default: its position in the output.
  void set_result(Place result) { result_ = result; }
  int steps() const { return team_.size(); }
  // Call it for 0 to steps() - 1, in this order. Steps of independent stages may be interleaved.
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

// All-gather around a ring: member i's part, which is in its output, reaches all outputs.
class RingAllGather {
 public:
  RingAllGather(ProgramBuilder& builder, const Team& team, const Split& split, std::size_t segment)
      : builder_(builder), team_(team), split_(split), segment_(segment) {}
  int steps() const { return team_.size(); }
  void step(int s);  // as above
  void run() {
    for (int s = 0; s < team_.size(); ++s) step(s);
  }

 private:
  ProgramBuilder& builder_;
  Team team_;
  Split split_;
  std::size_t segment_;
};

// Both of the above: the output of every member then holds the sum over the range.
void ring_all_reduce(ProgramBuilder& builder, const Team& team, Range range, BufferKind from,
                     std::size_t segment, bool finishes);

// A binomial tree over a team. `root` is an index into the team.
struct Tree {
  Team team;
  int root = 0;
  int relative() const { return team.wrapped(team.index() - root); }
  int rank(int relative_index) const { return team.rank(team.wrapped(relative_index + root)); }
  int parent() const;                 // a rank; kSelf: this rank is the root
  std::vector<int> children() const;  // ranks, nearest first
};
int levels_of(int size);  // ceil(log2(size))

// Sums the range up the tree, into the root's output. Inner members sum in scratch. `asks`: a
// member sends only after its parent has asked for the range.
void tree_reduce(ProgramBuilder& builder, const Tree& tree, Range range, BufferKind from,
                 std::size_t segment, bool finishes, bool asks);
// Copies the range from the root's output to all outputs. `asks`: a member sends only after its
// child has asked for the range.
void tree_broadcast(ProgramBuilder& builder, const Tree& tree, Range range, std::size_t segment,
                    bool asks);

// Every member signals every other member, then waits for all signals.
void signal_all(ProgramBuilder& builder, const Team& team);

// Divides `whole` into slices and calls `slice` for each. A slice takes at most `per_element`
// elements of scratch per element, plus `fixed`. Slices are chosen so that this fits into the
// shape's scratch. If the shape has too little, the program takes more than the shape allows.
void for_each_slice(ProgramBuilder& builder, Range whole, std::size_t per_element,
                    std::size_t fixed, const Shape& shape, const std::function<void(Range)>& slice);

}  // namespace dunlin::collective
