#include "collectives/schedule/program.h"

#include <algorithm>
#include <cassert>

namespace dunlin::collective {
namespace {

// Parts that begin at multiples of this many elements do not share cache lines, for any type.
constexpr std::size_t kGrain = 64;
// If parts are shorter than this, equal lengths matter more.
constexpr std::size_t kGrainsPerPart = 4;

// Number of peers that are searched before the hash table is used.
constexpr std::size_t kFirstPeers = 4;

std::size_t boundary(const Range& whole, std::size_t parts, std::size_t i) {
  if (i == parts) return whole.end();
  const std::size_t exact = whole.count / parts * i + whole.count % parts * i / parts;
  const bool is_long = whole.count / parts >= kGrainsPerPart * kGrain;
  return whole.begin + (is_long ? exact / kGrain * kGrain : exact);
}

}  // namespace

bool Program::needs_mapped_peers() const {
  return std::any_of(steps.begin(), steps.end(), [this](const Step& step) {
    if (step.kind != StepKind::kReduce) return false;
    const auto is_remote = [](const Operand& operand) { return operand.peer != kSelf; };
    return std::ranges::any_of(inputs(step), is_remote) ||
           std::ranges::any_of(targets(step), is_remote);
  });
}

Range part_of(Range whole, int parts, int i) {
  const auto count = static_cast<std::size_t>(parts);
  const std::size_t begin = boundary(whole, count, static_cast<std::size_t>(i));
  return {begin, boundary(whole, count, static_cast<std::size_t>(i) + 1) - begin};
}

std::size_t longest_part(std::size_t count, int parts) {
  const std::size_t exact = count / static_cast<std::size_t>(parts);
  return exact >= kGrainsPerPart * kGrain ? exact + 1 + kGrain : exact + 1;
}

std::size_t segments_of(Range whole, std::size_t length) {
  return whole.count <= length ? 1 : (whole.count + length - 1) / length;
}

Range segment_of(Range whole, std::size_t length, std::size_t i) {
  const std::size_t begin = i * length;
  return {whole.begin + begin, std::min(length, whole.count - begin)};
}

ProgramBuilder::ProgramBuilder(int rank, int size) {
  program_.rank = rank;
  program_.size = size;
}

void ProgramBuilder::put(Place from, int peer, Place to, std::size_t count) {
  to.rank = peer;
  Step& step = add(StepKind::kPut, peer);
  step.inputs = 1;
  step.targets = 1;
  step.count = count;
  const Operand operands[] = {operand(from), operand(to)};
  program_.all_operands.insert(program_.all_operands.end(), operands, operands + 2);
}

void ProgramBuilder::signal(int peer) {
  add(StepKind::kSignal, peer).stream = Stream::kControl;
}

void ProgramBuilder::wait(int peer, Place at, std::size_t count) {
  Step& step = add(StepKind::kWait, peer);
  step.targets = 1;
  step.count = count;
  program_.all_operands.push_back(operand(at));
}

void ProgramBuilder::wait_signal(int peer) {
  add(StepKind::kWait, peer).stream = Stream::kControl;
}

void ProgramBuilder::reduce(std::span<const Place> inputs, std::span<const Place> targets,
                            std::size_t count, bool finishes) {
  Step& step = add(StepKind::kReduce, kSelf);
  step.inputs = static_cast<std::uint16_t>(inputs.size());
  step.targets = static_cast<std::uint16_t>(targets.size());
  step.count = count;
  step.finishes = finishes;
  for (const auto& places : {inputs, targets}) {
    for (const Place& place : places) program_.all_operands.push_back(operand(place));
  }
}

void ProgramBuilder::copy(Place from, Place to, std::size_t count) {
  reduce({&from, 1}, {&to, 1}, count);
}

void ProgramBuilder::drain() {
  add(StepKind::kDrain, kSelf);
}

Place ProgramBuilder::scratch(std::size_t count) {
  const Place place{BufferKind::kScratch, next_scratch_, kSelf};
  next_scratch_ += (count + kGrain - 1) / kGrain * kGrain;
  program_.scratch = std::max(program_.scratch, next_scratch_);
  return place;
}

void ProgramBuilder::begin_slice(std::size_t capacity) {
  next_scratch_ = slices_ % 2 * capacity;
  ++slices_;
}

Program ProgramBuilder::take() {
  std::vector<int> puts(program_.peers.size());
  std::vector<int> waits(program_.peers.size());
  for (const Step& step : program_.steps) {
    program_.most_operands =
        std::max<std::size_t>({program_.most_operands, step.inputs, step.targets});
    if (step.kind == StepKind::kPut) ++puts[static_cast<std::size_t>(step.peer)];
    if (step.kind == StepKind::kWait && step.stream == Stream::kData)
      ++waits[static_cast<std::size_t>(step.peer)];
  }
  for (const int count : puts) program_.puts_once.push_back(count == 1);
  for (const int count : waits) program_.receives_once.push_back(count == 1);
  // Plans keep programs, so give back the memory that is left over.
  program_.steps.shrink_to_fit();
  program_.all_operands.shrink_to_fit();
  return std::move(program_);
}

Operand ProgramBuilder::operand(const Place& place) {
  const bool is_own = place.rank == kSelf || place.rank == program_.rank;
  return {place.offset, is_own ? kSelf : index_of(place.rank), place.buffer};
}

std::int32_t ProgramBuilder::index_of(int rank) {
  // The neighbors in a ring are looked up again and again.
  const std::size_t first = std::min(program_.peers.size(), kFirstPeers);
  for (std::size_t i = 0; i < first; ++i) {
    if (program_.peers[i] == rank) return static_cast<std::int32_t>(i);
  }
  const auto [found, is_new] =
      index_of_rank_.try_emplace(rank, static_cast<std::int32_t>(program_.peers.size()));
  if (is_new) program_.peers.push_back(rank);
  return found->second;
}

Step& ProgramBuilder::add(StepKind kind, int peer) {
  assert(peer != program_.rank);
  Step step;
  step.kind = kind;
  step.peer = peer == kSelf ? kSelf : index_of(peer);
  step.operands = static_cast<std::uint32_t>(program_.all_operands.size());
  return program_.steps.emplace_back(step);
}

}  // namespace dunlin::collective
