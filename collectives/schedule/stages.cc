#include "collectives/schedule/stages.h"

#include <algorithm>

namespace dunlin::collective {
namespace {

constexpr std::size_t kShortestSlice = 256;

}  // namespace

RingReduceScatter::RingReduceScatter(ProgramBuilder& builder, const Team& team, const Split& split,
                                     BufferKind from, std::size_t segment, bool finishes,
                                     std::size_t slot)
    : builder_(builder),
      team_(team),
      split_(split),
      from_(from),
      segment_(segment),
      finishes_(finishes),
      result_(output_at(split.part(team.index()).begin)) {
  for (int s = 0; s + 1 < team_.size(); ++s) received_.push_back(builder_.scratch(slot));
}

// The part that arrives in step s - 1 comes from the predecessor. Together with this rank's own
// contribution it is what this rank sends in step s.
void RingReduceScatter::step(int s) {
  const std::size_t segments = segments_of(sent(s), segment_);
  for (std::size_t i = 0; i < segments; ++i) segment(s, i);
}

void RingReduceScatter::segment(int s, std::size_t i) {
  const Range part = sent(s);
  const Range piece = segment_of(part, segment_, i);
  const std::size_t within = piece.begin - part.begin;
  Place partial{from_, piece.begin, kSelf};
  if (s > 0) {
    Place arrived = received_[static_cast<std::size_t>(s) - 1];
    arrived.offset += within;
    builder_.wait(team_.previous(), arrived, piece.count);
    const bool is_last = s == team_.size() - 1;
    Place sum = arrived;
    if (is_last) sum = {result_.buffer, result_.offset + within, result_.rank};
    const Place inputs[] = {arrived, partial};
    builder_.reduce(inputs, {&sum, 1}, piece.count, is_last && finishes_);
    partial = sum;
  }
  if (s + 1 < team_.size()) {
    Place slot = received_[static_cast<std::size_t>(s)];
    slot.offset += within;
    builder_.put(partial, team_.next(), slot, piece.count);
  }
}

void RingAllGather::step(int s) {
  const Range part = split_.part(team_.wrapped(team_.index() - s));
  for (std::size_t i = 0; i < segments_of(part, segment_); ++i) {
    const Range piece = segment_of(part, segment_, i);
    const Place place = output_at(piece.begin);
    if (s > 0) builder_.wait(team_.previous(), place, piece.count);
    if (s + 1 < team_.size()) builder_.put(place, team_.next(), place, piece.count);
  }
}

void ring_all_reduce(ProgramBuilder& builder, const Team& team, Range range, BufferKind from,
                     std::size_t segment, bool finishes) {
  const Split split = Split::parts(range, team.size());
  RingReduceScatter(builder, team, split, from, segment, finishes).run();
  RingAllGather(builder, team, split, segment).run();
}

int levels_of(int size) {
  int levels = 0;
  while ((std::int64_t{1} << levels) < size) ++levels;
  return levels;
}

int Tree::parent() const {
  const int self = relative();
  return self == 0 ? kSelf : rank(self & (self - 1));
}

std::vector<int> Tree::children() const {
  const int self = relative();
  std::vector<int> children;
  for (std::int64_t bit = 1; self + bit < team.size() && (self & bit) == 0; bit *= 2)
    children.push_back(rank(self + static_cast<int>(bit)));
  return children;
}

void tree_reduce(ProgramBuilder& builder, const Tree& tree, Range range, BufferKind from,
                 std::size_t segment, bool finishes, bool asks) {
  const std::vector<int> children = tree.children();
  const int parent = tree.parent();
  // One slot per level, whether or not this rank has a child there: places are equal on all ranks.
  std::vector<Place> received;
  for (int level = 0; level < levels_of(tree.team.size()); ++level)
    received.push_back(builder.scratch(range.count));
  const Place sum = builder.scratch(range.count);
  if (asks) {
    for (const int child : children) builder.signal(child);
    if (parent != kSelf) builder.wait_signal(parent);
  }
  // This rank is its parent's child at the level of its lowest bit.
  std::size_t level = 0;
  while (parent != kSelf && (tree.relative() >> level & 1) == 0) ++level;
  for (std::size_t i = 0; i < segments_of(range, segment); ++i) {
    const Range piece = segment_of(range, segment, i);
    const std::size_t within = piece.begin - range.begin;
    const auto at = [&](Place place) {
      place.offset += within;
      return place;
    };
    Place partial{from, piece.begin, kSelf};
    if (!children.empty()) {
      std::vector<Place> inputs{partial};
      for (std::size_t child = 0; child < children.size(); ++child) {
        builder.wait(children[child], at(received[child]), piece.count);
        inputs.push_back(at(received[child]));
      }
      partial = parent == kSelf ? output_at(piece.begin) : at(sum);
      builder.reduce(inputs, {&partial, 1}, piece.count, parent == kSelf && finishes);
    }
    if (parent != kSelf) builder.put(partial, parent, at(received[level]), piece.count);
  }
}

void tree_broadcast(ProgramBuilder& builder, const Tree& tree, Range range, std::size_t segment,
                    bool asks) {
  std::vector<int> children = tree.children();
  std::ranges::reverse(children);  // the deepest subtree first
  const int parent = tree.parent();
  if (asks) {
    if (parent != kSelf) builder.signal(parent);
    for (const int child : children) builder.wait_signal(child);
  }
  for (std::size_t i = 0; i < segments_of(range, segment); ++i) {
    const Range piece = segment_of(range, segment, i);
    const Place place = output_at(piece.begin);
    if (parent != kSelf) builder.wait(parent, place, piece.count);
    for (const int child : children) builder.put(place, child, place, piece.count);
  }
}

void signal_all(ProgramBuilder& builder, const Team& team) {
  for (int i = 1; i < team.size(); ++i) builder.signal(team.rank(team.wrapped(team.index() + i)));
  for (int i = 1; i < team.size(); ++i)
    builder.wait_signal(team.rank(team.wrapped(team.index() - i)));
}

void for_each_slice(ProgramBuilder& builder, Range whole, std::size_t per_element,
                    std::size_t fixed, const Shape& shape,
                    const std::function<void(Range)>& slice) {
  if (shape.scratch >= per_element * whole.count + fixed) {
    slice(whole);
    return;
  }
  const std::size_t half = shape.scratch / 2;
  // Slices must not become so short that programs grow without bound. With too little scratch, the
  // program takes more than the shape allows, which its user detects.
  const std::size_t longest =
      std::max(kShortestSlice, half > fixed ? (half - fixed) / per_element : 0);
  for (std::size_t i = 0; i < segments_of(whole, longest); ++i) {
    builder.begin_slice(half);
    slice(segment_of(whole, longest, i));
  }
}

}  // namespace dunlin::collective
