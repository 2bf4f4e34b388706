// Program: what one rank does in a collective, as data. The programs of all ranks together are a
// schedule.
//
// A program is carried out in order. Its steps put bytes to peers and announce them, signal peers
// without bytes, wait for what peers announce, and reduce or copy within memory that this process
// can touch. Between two ranks there are two streams in each direction, as there are two lanes:
// data (puts) and control (signals). On a stream messages are counted: the n-th wait of the
// receiver is for the n-th message of the sender. A put's bytes are there when its message was
// waited for; a signal says nothing about puts.
//
// So a schedule is a Kahn process network: what every rank computes, and whether it comes to an
// end, does not depend on timing, only on the programs. Reading memory in one piece of program
// while a message may still change it is the one thing that this does not exclude; check.h does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace dunlin::collective {

// Of a rank. Scratch is memory of the executor; what it holds before and after has no meaning.
enum class BufferKind : std::uint8_t { kInput, kOutput, kScratch };
inline constexpr std::size_t kBufferKinds = 3;

enum class Stream : std::uint8_t { kData, kControl };
inline constexpr std::size_t kStreams = 2;

enum class StepKind : std::uint8_t {
  kPut,     // one input of this rank, to one target at the peer; announced on the data stream
  kSignal,  // a message without bytes, on the control stream
  kWait,    // for the next message of the peer on `stream`; target: where a put's bytes land
  kReduce,  // targets = the sum over the inputs, in their order; one input: a copy
  kDrain,   // until this rank's puts so far have released their inputs
};

inline constexpr std::int32_t kSelf = -1;

// Where elements start. With a peer other than kSelf, in the peer's buffer of that kind.
struct Operand {
  std::uint64_t offset = 0;   // in elements
  std::int32_t peer = kSelf;  // index into Program::peers
  BufferKind buffer = BufferKind::kInput;
};

struct Step {
  StepKind kind = StepKind::kSignal;
  Stream stream = Stream::kData;
  bool finishes = false;       // kReduce: the result is final: an average is divided now
  std::int32_t peer = kSelf;   // whom to put to, to signal, to wait for; index into Program::peers
  std::uint32_t operands = 0;  // the first of its operands: inputs, then targets
  std::uint16_t inputs = 0;
  std::uint16_t targets = 0;
  std::uint64_t count = 0;  // elements of each operand
};

struct Program {
  int rank = 0;
  int size = 1;
  std::size_t scratch = 0;  // elements that this rank has to have
  std::vector<int> peers;   // ranks that it has to do with
  // By peer: a single put goes there; a single one comes from there. Such a one may carry its bytes
  // within its notification, as no later one can overwrite it.
  std::vector<bool> puts_once;
  std::vector<bool> hears_once;
  std::vector<Step> steps;
  std::size_t most_operands = 0;  // inputs or targets of any step
  std::vector<Operand> all_operands;

  std::span<const Operand> inputs(const Step& step) const {
    return {all_operands.data() + step.operands, step.inputs};
  }
  std::span<const Operand> targets(const Step& step) const {
    return {all_operands.data() + step.operands + step.inputs, step.targets};
  }
  const Operand& input(const Step& step) const { return all_operands[step.operands]; }
  const Operand& target(const Step& step) const {
    return all_operands[step.operands + step.inputs];
  }
  // Touches peers' memory by itself: all of them have to be mapped here.
  bool needs_mapped_peers() const;
};

// Elements [begin, begin + count).
struct Range {
  std::size_t begin = 0;
  std::size_t count = 0;
  std::size_t end() const { return begin + count; }
};
// The i-th of `parts` parts of nearly the same size, in whole cache lines where there are many
// elements.
Range part_of(Range whole, int parts, int i);
// None of the parts of `count` elements is longer.
std::size_t longest_part(std::size_t count, int parts);
// The i-th stretch of at most `length`, and how many there are (at least one, which may be empty).
Range segment_of(Range whole, std::size_t length, std::size_t i);
std::size_t segments_of(Range whole, std::size_t length);

// A place in the memory of a rank.
struct Place {
  BufferKind buffer = BufferKind::kInput;
  std::size_t offset = 0;
  int rank = kSelf;
};
inline Place input_at(std::size_t offset, int rank = kSelf) {
  return {BufferKind::kInput, offset, rank};
}
inline Place output_at(std::size_t offset, int rank = kSelf) {
  return {BufferKind::kOutput, offset, rank};
}

class ProgramBuilder {
 public:
  ProgramBuilder(int rank, int size);

  int rank() const { return program_.rank; }
  int size() const { return program_.size; }

  // `to`: at the rank `peer`.
  void put(Place from, int peer, Place to, std::size_t count);
  void signal(int peer);
  // For a put of `count` elements whose bytes land at `at`.
  void wait(int peer, Place at, std::size_t count);
  void wait_signal(int peer);
  void reduce(std::span<const Place> inputs, std::span<const Place> targets, std::size_t count,
              bool finishes = false);
  void copy(Place from, Place to, std::size_t count);
  void drain();

  // `count` elements of scratch, not used before in this slice. Who puts there has to know the
  // place: the same sequence of calls on all ranks gives the same places.
  Place scratch(std::size_t count);
  // What was handed out from `place` on may be handed out again.
  void rewind_scratch(Place place) { next_scratch_ = place.offset; }
  // For long operations in slices, one after the other: the scratch of the slice before last, of at
  // most `capacity` elements, is used again from now on.
  void begin_slice(std::size_t capacity);

  Program take();

 private:
  Operand operand(const Place& place);
  std::int32_t index_of(int rank);
  Step& add(StepKind kind, int peer);

  Program program_;
  std::unordered_map<int, std::int32_t> index_of_rank_;
  std::size_t next_scratch_ = 0;
  std::size_t slices_ = 0;
};

}  // namespace dunlin::collective
