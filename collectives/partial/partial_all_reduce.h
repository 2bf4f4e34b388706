// PartialAllReduce: the members of a group, any ranks of the job, average their models (Ripples /
// Prague, section 3.2): x_i <- mean over G of x_j for i in G, the paper's F^G. Groups may be others
// in each call.
//
//   auto partial = PartialAllReduce::create(fabric, {});
//   auto model = partial->allocate(bytes);
//   PartialCall call{.number = group.sequence, .members = group.ranks};
//   call.input = call.output = model->data();
//   call.count = n;
//   partial->run(call);                          // all members do; nobody else takes part
//
// Numbers. Operations have numbers, 1 and up, that all their members know them by. Each rank starts
// its operations in the order of their numbers, which may have gaps: one total order of all groups.
// A rank carries them out one after the other: two that share a rank never overlap, which makes
// each of them atomic (section 4.1); those that share none run at the same time. In one total order
// nothing can deadlock: of all operations under way the one with the lowest number has its members'
// whole attention. Setting up waits for nobody's operations: see below. Several objects on one rank
// need one order over the operations of all of them: while one is waited for, the others stand.
//
// How. Instead of a communicator per group, of which there may be as many as subsets of ranks, each
// rank has one scratch memory, and cells for each peer; two ranks that are first in a group
// together look up each other's, and connect. A call begins with a word from each member to each
// other: what it calls, where its memory is, that its scratch is free. When all have come, which
// also finds those who call something else, the program of an ordinary all-reduce runs (schedule/),
// among the members and straight out of and into their memory. So a group that was never seen
// before costs what one that was does, there is nothing to evict, nothing global, and at most a
// connection per peer. What is cached are programs, by algorithm, size of the group, place in it,
// count and size of an element, each rank's own affair.
//
// Memory from allocate() is what operations run on without copying: it is registered, and peers on
// this host map it. Ranks allocate on their own. Other memory works as well, if one member has it:
// all members then copy in and out by slices. Input and output are the same, or don't overlap.
//
// The result is bitwise the same on all members, and from run to run for the same algorithm.
//
// Errors. Members that call different things under one number (another group, count, type or
// operation) get kInvalidArgument that names who differ. A member that dies or leaves: the
// others get kPeerDead, which names it. One that never comes: whoever waits first gets
// kDeadlineExceeded (kPeerStalled, if it is stopped), which names it, and the others get that from
// him, naming it as well. Whoever gives up says so to all members, who then give up, too: but one
// may have ended well where another didn't. Afterwards:
//   - Operations without the one who is to blame go on as ever, as do those with him once he makes
//     progress again; only his own calls, if he had not made them, find out that they are late.
//   - `input` is what it was, unless it is `output` as well. `output` holds parts of old and new.
//     Members that have not heard of the end yet may still read the former, as may puts of ours
//     that are under way, and write to the latter; and one of them may end well with what it reads.
//     So memory from allocate() is not written to any more: whoever goes on copies his model, which
//     `input` still is if it isn't `output`, into fresh memory first. Both old ones may be freed:
//     they stay.
//   - The scratch memory is replaced; the old one stays until the end, in case somebody still
//     writes there, as does memory that was part of a failed operation and is freed.
//
// Owner thread only. Destroy it when all ranks are done with theirs (a barrier, say), before the
// fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/kernels/reduce.h"
#include "transports/fabric.h"

namespace dunlin::collective {

// The same on all ranks.
struct PartialOptions {
  std::string name = "world";  // distinguishes those of one job
  // For what peers send before it can be reduced, rounded down to cache lines. A rank has twice of
  // it, and 2 MiB to copy other memory to: 6 MiB at the default. Larger operations go through it
  // piece by piece; where it is too small even for that (tens of KiB, more for large groups), they
  // end with kResourceExhausted.
  std::size_t scratch_bytes = std::size_t{2} << 20;
  // Longer messages are pipelined in segments of this.
  std::size_t segment_bytes = std::size_t{256} << 10;
  std::string algorithm;  // of all-reduce, one that needs no groups; empty: chosen
};

struct PartialCall {
  std::uint64_t number = 0;
  std::vector<Rank> members;  // with this rank, in any order
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // elements; 0: the members just meet
  Reduction reduction{DataType::kFloat32, ReduceOp::kAverage};
};

struct PartialRequest {
  std::uint64_t number = 0;  // the call's
};

struct PartialStatistics {
  std::uint64_t operations = 0;  // that have ended well
  std::uint64_t failures = 0;
  std::size_t peers = 0;  // met
  std::uint64_t programs_generated = 0;
  std::uint64_t programs_found = 0;  // among those kept
  std::size_t programs_kept = 0;
};

class PartialAllReduce {
 public:
  // Not collective: ranks meet later. kInvalidArgument for an algorithm that isn't there, or needs
  // groups, and for less scratch than a cache line.
  static Result<std::unique_ptr<PartialAllReduce>> create(transport::Fabric& fabric,
                                                          PartialOptions options);
  ~PartialAllReduce();
  PartialAllReduce(const PartialAllReduce&) = delete;
  PartialAllReduce& operator=(const PartialAllReduce&) = delete;

  // Zeroed memory of `bytes` for operations, until it is freed or this object goes. Members may
  // have theirs at different places of different allocations.
  Result<std::span<std::byte>> allocate(std::size_t bytes);
  // kInvalidArgument while an operation is on it. Peers that have reached it keep it mapped until
  // their end.
  Status free(std::span<std::byte> memory);

  // Begins an operation, or puts it behind those that were begun before. Input and output are the
  // operation's until it has ended. A group of this rank alone copies. kInvalidArgument,
  // kOutOfRange: nothing was begun.
  Result<PartialRequest> start(const PartialCall& call);
  // kBusy until the request has ended; its outcome once, kNotFound from then on, as after a wait
  // that gave it up. Moves all requests on.
  Status test(PartialRequest request);
  // Ends the request one way or the other: at the deadline it is given up.
  Status wait(PartialRequest request, Duration timeout);
  // start() and wait() for config.deadline.
  Status run(const PartialCall& call);
  // Moves everything on, as test() does. Ranks that are done with their own operations need not
  // call it, unless one has failed.
  void progress();

  // Whom the request waits for, and for what.
  std::vector<transport::Awaited> awaited(PartialRequest request) const;
  PartialStatistics statistics() const;

 private:
  class Impl;
  explicit PartialAllReduce(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin::collective
