// Executor: carries out one program after the other, for one rank, on real lanes or simulated ones.
//
// A state machine under start() and test(): nothing blocks or reads a clock. What waits
// for peers returns kBusy; whoever owns the executor progresses the lanes in between. Programs of
// all ranks have to be of one schedule.
//
// Memory: a program's scratch and user buffers are slices of registered regions; peers' are reached
// through regions that were imported. Reductions are done by a Compute: at once by the kernels, or
// in virtual time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/kernels/reduce.h"
#include "collectives/schedule/program.h"
#include "transports/lane.h"

namespace dunlin::collective {

// Reduces, or pretends to.
class Compute {
 public:
  virtual ~Compute() = default;
  // Reduces (collectives/kernels/reduce.h) and returns true; or false until it is done: it is
  // called again, with the same arguments, when the rank is woken.
  virtual bool run(Reduction reduction, std::span<const std::byte* const> inputs,
                   std::span<std::byte* const> targets, std::size_t count, std::size_t divisor) = 0;
};

// By the kernels, at once. Targets too large for the last-level cache go past the caches.
class KernelCompute final : public Compute {
 public:
  KernelCompute();
  bool run(Reduction reduction, std::span<const std::byte* const> inputs,
           std::span<std::byte* const> targets, std::size_t count, std::size_t divisor) override;

 private:
  std::size_t streaming_bytes_;
};

// One of the peers of a program, and the messages to and from it so far. Outlives the programs that
// run over it: messages are counted on.
struct ExecutorPeer {
  struct Way {
    transport::Lane* lane = nullptr;
    transport::NotifyId theirs{};  // on the peer's board, written by us
    transport::NotifyId ours{};    // on our board, written by the peer
    std::uint64_t sent = 0;
    std::uint64_t taken = 0;
  };
  Way ways[kStreams];
  Rank rank;
};

// Where a buffer of a peer is.
struct PeerBuffer {
  const transport::RemoteRegion* region = nullptr;
  std::size_t offset = 0;       // in bytes
  std::byte* mapped = nullptr;  // where this process has it; null: not mapped
};

// Everything that a program runs on. Memory is the caller's until the program has ended.
struct ExecutorBinding {
  const Program* program = nullptr;
  std::span<ExecutorPeer* const> peers;  // as Program::peers
  std::array<transport::LocalSlice, kBufferKinds> own;
  // By peer and kind; those that the program doesn't touch may be empty.
  std::span<const std::array<PeerBuffer, kBufferKinds>> buffers;
  Reduction reduction;
  std::size_t element = 0;      // bytes of one
  std::uint32_t signature = 0;  // of the call: a peer that is in another one is found out, mostly
};

class Executor {
 public:
  Executor(transport::NotifyBoard& board, Compute& compute) : board_(board), compute_(compute) {}
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Begins a program; allocates if none before had as many peers or operands. kInvalidArgument
  // while one runs. What `binding` refers to stays as it is until the program has ended.
  Status start(const ExecutorBinding& binding);
  // The same program again, on the same memory, once it has ended well.
  void restart() {
    at_ = 0;
    is_running_ = true;
  }
  // kBusy until the program has ended and its puts have released their inputs. An error is final:
  // the program stops where it is, and its puts may still be under way (is_quiet()).
  Status test();
  bool is_running() const { return is_running_; }
  // No operation of ours is under way.
  bool is_quiet() const;
  // The peer whose message the program waits for; nobody when it waits for its own puts.
  Rank awaited() const;

 private:
  void make_room(const Program& program);
  Status run();
  Status put(const Step& step);
  Status signal(const Step& step);
  Status wait(const Step& step);
  Status reduce(const Step& step);
  // All puts so far have released their inputs.
  Status drain();
  // What comes with a message that is the peer's only one.
  Status take_content(const Step& step, const transport::NotifyCell& cell) const;
  ExecutorPeer& peer(const Step& step) const {
    return *binding_.peers[static_cast<std::size_t>(step.peer)];
  }
  std::byte* own(const Operand& operand) const;
  std::byte* reach(const Operand& operand) const;

  struct PeerState {
    bool has_puts = false;     // that weren't drained yet
    bool is_draining = false;  // `flushed` will tell
  };

  transport::NotifyBoard& board_;
  Compute& compute_;
  ExecutorBinding binding_;
  std::size_t at_ = 0;
  bool is_running_ = false;
  std::size_t state_count_ = 0;
  std::vector<PeerState> states_;
  std::unique_ptr<transport::Completion[]> flushed_;
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> targets_;
};

}  // namespace dunlin::collective
