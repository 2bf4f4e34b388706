// Executor: runs the programs of one rank, one after the other, on real or simulated lanes.
//
// A state machine under start() and test(): it never blocks and never reads a clock. test() returns
// kBusy while the program waits for a peer; the owner of the executor progresses the lanes in
// between. The programs of all ranks must belong to one schedule. This is checked: every message
// carries the signature of its sender's call, and a wait for a message with another signature
// fails. A program accesses a peer's input or output only after it has heard from that peer,
// directly or through others (check.h proves it), so a mismatch does no harm outside scratch.
//
// Memory: scratch and user buffers are slices of registered regions. Peers' buffers are reached
// through imported regions. A Compute does the reductions, either with the kernels or in virtual
// time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/kernels/reduce.h"
#include "collectives/schedule/program.h"
#include "transports/lane.h"

namespace dunlin::collective {

// Performs reductions, or simulates how long they take.
class Compute {
 public:
  virtual ~Compute() = default;
  // Reduces (collectives/kernels/reduce.h). Returns ok when the reduction is complete, kBusy as
  // long as it is in progress, or why it failed. After kBusy it is called again, with the same
  // arguments, when the rank wakes.
  virtual Status run(Reduction reduction, std::span<const std::byte* const> inputs,
                     std::span<std::byte* const> targets, std::size_t count,
                     std::size_t divisor) = 0;
  // Whether no reduction accesses memory any more, even if run() is not called again.
  virtual bool is_idle() { return true; }
  // Waits for that.
  virtual void settle() {}
};

// Reduces at once, with the kernels. Uses streaming stores for targets that exceed the cache.
class KernelCompute final : public Compute {
 public:
  KernelCompute();
  Status run(Reduction reduction, std::span<const std::byte* const> inputs,
             std::span<std::byte* const> targets, std::size_t count, std::size_t divisor) override;

 private:
  std::size_t streaming_bytes_;
};

// How messages are numbered in the cells. Programs use the same cells one after the other. The
// lower `round_bits` bits of a sequence number say which program it belongs to: they hold the
// round, which counts the programs, without its upper bits. The highest of them marks a probe
// (Executor::probe). The bits above count the messages. Without round bits, the cells must not
// receive a message of a later program before the receiver has ended its own.
struct Numbering {
  int round_bits = 0;  // at most kMostRoundBits
  std::uint64_t round = 0;

  // The verbs transport sends steps of up to 2^14 - 1 without a record (transports/verbs).
  static constexpr int kMostRoundBits = 12;

  std::uint64_t mask() const { return (std::uint64_t{1} << round_bits) - 1; }
  std::uint64_t probe_bit() const {
    return round_bits == 0 ? 0 : std::uint64_t{1} << (round_bits - 1);
  }
  std::uint64_t message(std::uint64_t count) const {
    return count << round_bits | (round & mask() & ~probe_bit());
  }
  std::uint64_t count_of(std::uint64_t sequence) const { return sequence >> round_bits; }
  bool is_probe(std::uint64_t sequence) const { return (sequence & probe_bit()) != 0; }
  bool is_this_round(std::uint64_t sequence) const {
    return ((sequence ^ round) & mask() & ~probe_bit()) == 0;
  }
  // The length of a probe's notification: more bits of the round, so that a probe that stays in a
  // cell for long is not taken for a new one.
  std::uint32_t probe_length() const { return static_cast<std::uint32_t>(round); }
};

// The signature in a probe that a peer has sent in this round; nothing if the last notification in
// the cell was none.
std::optional<std::uint64_t> probed_signature(const transport::NotifyCell& cell,
                                              const Numbering& numbering);

// A peer of a program, with the number of messages to and from it so far. These numbers continue
// from program to program, so the object outlives the programs that use it.
struct ExecutorPeer {
  struct Way {
    transport::Lane* lane = nullptr;
    transport::NotifyId theirs{};  // cell on the peer's board that this rank writes
    transport::NotifyId ours{};    // cell on this rank's board that the peer writes
    std::uint64_t sent = 0;        // messages to the peer
    std::uint64_t taken = 0;       // messages from the peer that waits have received
  };
  Way ways[kStreams];
  Rank rank;
  std::uint64_t probed = 0;  // the round of the last probe, plus one
};

// A peer that executes another call.
struct Mismatch {
  Rank peer;
  std::uint64_t signature = 0;  // of the peer's call
};

// Where a peer's buffer is.
struct PeerBuffer {
  const transport::RemoteRegion* region = nullptr;
  std::size_t offset = 0;       // in bytes
  std::byte* mapped = nullptr;  // its address for the Compute of this process; null: not mapped
};

// Everything that a program runs on. The memory belongs to the program until it has ended.
struct ExecutorBinding {
  const Program* program = nullptr;
  std::span<ExecutorPeer* const> peers;  // in the order of Program::peers
  std::array<transport::LocalSlice, kBufferKinds> own;
  // Indexed by peer and kind. Entries that the program does not access may be empty.
  std::span<const std::array<PeerBuffer, kBufferKinds>> buffers;
  Reduction reduction;
  std::size_t element = 0;  // bytes per element
  // The tag of every message. It is equal on ranks that execute the same call, and otherwise
  // different, except for chance collisions.
  std::uint64_t signature = 0;
  Numbering numbering{};
  bool is_on_gpu = false;  // the CPU cannot access the buffers
};

class Executor {
 public:
  Executor(transport::NotifyBoard& board, Compute& compute) : board_(board), compute_(compute) {}
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Begins a program. Allocates if no earlier program had as many peers or operands. Returns
  // kInvalidArgument while a program is running. What `binding` refers to must not change until the
  // program has ended.
  Status start(const ExecutorBinding& binding);
  // Runs the same program on the same memory again, in another round. Only after it has ended
  // without an error.
  void restart(std::uint64_t round) {
    binding_.numbering.round = round;
    at_ = 0;
    is_running_ = true;
  }
  // Returns kBusy until the program has ended and its puts have released their inputs. An error is
  // final: the program stops, but its puts may still be in progress (is_quiet()).
  Status test();
  bool is_running() const { return is_running_; }
  // True if no lane or reduction accesses this rank's memory for the program any more.
  bool is_quiet() const;
  // Stops the program for good, and learns when its puts have released their inputs. Returns
  // is_quiet(); call it again until that is true. The peers of the binding have to exist meanwhile.
  bool stop();
  // The peer whose message the program waits for. No rank while it waits for its own puts.
  Rank awaited() const;
  // Set once test() has failed because a peer executes another call.
  const std::optional<Mismatch>& mismatch() const { return mismatch_; }
  // Tells the peer whose message this program waits for which call this rank executes: a probe, a
  // notification in the control cell that counts as no message. At most one per program and peer.
  // Its sequence number may be smaller than that of the last probe, since no reader waits for one.
  // Requires round bits.
  Status probe();

 private:
  void make_room(const Program& program);
  Status run();
  Status put(const Step& step);
  Status signal(const Step& step);
  Status wait(const Step& step);
  // kBusy, or the error because of which no message will come.
  Status still_waits() const;
  Status reduce(const Step& step);
  // Waits until all puts so far have released their inputs.
  Status drain();
  // Posts the flush of a peer that has puts. kBusy: the lane has no room.
  Status begin_drain(std::size_t peer);
  // Checks that the peer executes the same call. `sequence`: of the cell.
  Status check_sender(const Step& step, const transport::NotifyCell& cell, std::uint64_t sequence);
  // The messages on the step's stream that the program still waits for, this one included.
  std::uint64_t messages_left(const Step& step) const;
  ExecutorPeer& peer(const Step& step) const {
    return *binding_.peers[static_cast<std::size_t>(step.peer)];
  }
  transport::Lane& data_lane(std::size_t peer) const {
    return *binding_.peers[peer]->ways[static_cast<std::size_t>(Stream::kData)].lane;
  }
  std::byte* own(const Operand& operand) const;
  std::byte* reach(const Operand& operand) const;

  struct PeerState {
    bool has_puts = false;     // puts that were not drained yet
    bool is_draining = false;  // a flush was posted; its completion is in flushed_
  };

  transport::NotifyBoard& board_;
  Compute& compute_;
  ExecutorBinding binding_;
  std::optional<Mismatch> mismatch_;
  std::size_t at_ = 0;
  bool is_running_ = false;
  std::size_t state_count_ = 0;
  std::vector<PeerState> states_;
  std::unique_ptr<transport::Completion[]> flushed_;
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> targets_;
};

}  // namespace dunlin::collective
