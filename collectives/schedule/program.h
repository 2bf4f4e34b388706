// Program: the steps of one rank in a collective, as data. The programs of all ranks together form
// a schedule.
//
// The steps of a program run in order. They put bytes to peers and announce them, signal peers
// without bytes, wait for the announcements of peers, and reduce or copy within memory that this
// process can access. There are two streams in each direction between two ranks, one per lane: the
// data stream carries puts, the control stream carries signals. The n-th wait of a receiver on a
// stream is for the n-th message of the sender. The bytes of a put have arrived once the receiver
// has waited for its message. A signal says nothing about puts.
//
// A schedule is therefore a Kahn process network: neither the results of a rank nor whether it
// comes to an end depend on timing. One thing is not excluded: a step may read memory that a
// message still changes. The checker (check.h) excludes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace dunlin::collective {

// The buffers of a rank. Scratch belongs to the executor; its contents are undefined before and
// after a program.
enum class BufferKind : std::uint8_t { kInput, kOutput, kScratch };
inline constexpr std::size_t kBufferKinds = 3;

enum class Stream : std::uint8_t { kData, kControl };
inline constexpr std::size_t kStreams = 2;

enum class StepKind : std::uint8_t {
  kPut,     // puts one operand of this rank to the peer, and announces it on the data stream
  kSignal,  // sends a message without bytes on the control stream
  kWait,    // waits for the peer's next message on `stream`; its target is where a put's bytes land
  kReduce,  // writes the reduction of all inputs, in their order, to all targets; one input: a copy
  kDrain,   // waits until this rank's puts so far have released their inputs
};

inline constexpr std::int32_t kSelf = -1;

// The first element of an input or target. `peer` other than kSelf: in that peer's buffer.
struct Operand {
  std::uint64_t offset = 0;   // in elements
  std::int32_t peer = kSelf;  // index into Program::peers
  BufferKind buffer = BufferKind::kInput;
};

struct Step {
  StepKind kind = StepKind::kSignal;
  Stream stream = Stream::kData;
  bool finishes = false;       // kReduce: the result is final, so an average is divided now
  std::int32_t peer = kSelf;   // receiver or sender of the message; index into Program::peers
  std::uint32_t operands = 0;  // index of the first operand; inputs come before targets
  std::uint16_t inputs = 0;
  std::uint16_t targets = 0;
  std::uint64_t count = 0;  // elements of each operand
};

struct Program {
  int rank = 0;
  int size = 1;
  std::size_t scratch = 0;  // elements of scratch that this rank needs
  std::vector<int> peers;   // ranks that it communicates with
  // For each peer, whether the program puts to it exactly once, or receives exactly one put from
  // it. Such a message may carry its bytes inside the notification, because no later one overwrites
  // the cell.
  std::vector<bool> puts_once;
  std::vector<bool> receives_once;
  std::vector<Step> steps;
  std::size_t most_operands = 0;  // largest number of inputs or of targets of a step
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
  // True if a step accesses a peer's memory directly, which then has to be mapped here.
  bool needs_mapped_peers() const;
};

// The elements [begin, begin + count).
struct Range {
  std::size_t begin = 0;
  std::size_t count = 0;
  std::size_t end() const { return begin + count; }
};
// Divides `whole` into `parts` of nearly the same size and returns the i-th. If there are enough
// elements, parts begin on cache lines.
Range part_of(Range whole, int parts, int i);
// Upper bound on the length of such a part, for `count` elements.
std::size_t longest_part(std::size_t count, int parts);
// Divides `whole` into segments of at most `length` elements and returns the i-th.
Range segment_of(Range whole, std::size_t length, std::size_t i);
// The number of such segments: at least one, which may be empty.
std::size_t segments_of(Range whole, std::size_t length);

// A position in a buffer of a rank. kSelf: the rank whose program is generated.
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

  // Puts `count` elements to `to` on the rank `peer`.
  void put(Place from, int peer, Place to, std::size_t count);
  void signal(int peer);
  // Waits for a put of `count` elements whose bytes arrive at `at`.
  void wait(int peer, Place at, std::size_t count);
  void wait_signal(int peer);
  void reduce(std::span<const Place> inputs, std::span<const Place> targets, std::size_t count,
              bool finishes = false);
  void copy(Place from, Place to, std::size_t count);
  void drain();

  // Hands out `count` elements of scratch that this slice has not used yet. A sender has to know
  // the position in the receiver's scratch: all ranks must make the same sequence of calls.
  Place scratch(std::size_t count);
  // Allows scratch() to hand out everything from `place` on again.
  void rewind_scratch(Place place) { next_scratch_ = place.offset; }
  // Begins the next slice of a long operation. From now on scratch() hands out the memory of the
  // slice before the last one again. A slice uses at most `capacity` elements.
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
