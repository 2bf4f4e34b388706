// PartialAllReduce: the members of a group, which may be any ranks of the job, average their models
// (Ripples / Prague, section 3.2): x_i <- mean over G of x_j for i in G, the paper's F^G. Each call
// may have another group.
//
//   auto partial = PartialAllReduce::create(fabric, {});
//   auto model = partial->allocate(bytes);
//   PartialCall call{.number = group.sequence, .members = group.ranks};
//   call.input = call.output = model->data();
//   call.count = n;
//   partial->run(call);                          // all members do, and no other rank
//
// Numbers. All members know an operation by its number, 1 and up. Each rank starts its operations
// in the order of their numbers, which may have gaps, so there is one total order of all groups. A
// rank carries its operations out one after the other. Operations that share a rank therefore never
// overlap, which makes each of them atomic (section 4.1); operations that share none run at the
// same time. One total order can't deadlock: the operation with the lowest number of all that are
// in progress is the first one of each of its members. Setting up waits for no operation of another
// rank; see below. If a rank has several of these objects, the operations of all of them need one
// order: while one object is waited for, the others stand still.
//
// How it works. There may be as many groups as subsets of ranks, so there is no communicator per
// group. Each rank has one scratch memory, and cells for each peer. Two ranks that are in a group
// together for the first time look each other up, and connect. An operation begins with a hello
// from each member to each other one: what it calls, where its memory is, and that its scratch is
// free. Once all hellos have arrived, which also reveals members with a different call, the program
// of an ordinary all-reduce (schedule/) runs among the members, straight out of and into their
// memory. So a new group costs as much as a known one. Nothing is global and nothing has to be
// evicted. There is at most one connection per peer. Each rank keeps programs for itself, by
// algorithm, size of the group, place in it, count and element size.
//
// Operations run without copying on memory from allocate(): it is registered, and peers on this
// host map it. Ranks allocate on their own. Other memory can be used as well; if one member does,
// all members copy in and out by slices. Input and output are the same, or don't overlap.
//
// GPUs. With PartialOptions::gpu, allocate() returns memory of that GPU, whose contents are
// undefined, and operations take no other memory. Members on one host reach it by CUDA IPC; each
// reduction is one launch, with the bits that it has on the CPU. Work on the input has to be
// complete before start(), and the output is complete when the operation is. An aborted operation
// waits for the reduction that it has in progress, as that may access the memory of members. Errors
// of the driver name its call, and the other members get an error that names this rank.
//
// The result is bitwise the same on all members, and from run to run for the same algorithm.
//
// Errors. Members that make different calls under one number (another group, label, count, type or
// operation) get kInvalidArgument, which names a member that differs. If a member dies or leaves,
// the others get kPeerDead, which names it. If a member never comes, the first member whose
// deadline passes gets kDeadlineExceeded (kPeerStalled if the missing one is stopped), and tells
// the others, which get the same error; all errors name the missing member. A rank that aborts an
// operation tells all members, and they abort it, too. However, one member may have succeeded where
// another one has not. Afterwards:
//   - Operations without the member that caused the error go on as ever. Those with it do as soon
//     as it makes progress again; only calls that it had not made find out that they are late.
//   - `input` is unchanged, unless it is `output` as well. `output` holds parts of old and new.
//     Members that have not heard of the end yet may still read `input` and write to `output`, as
//     may puts of this rank that are in progress, and one of them may succeed with what it reads.
//     So memory from allocate() must not be written to any more: to go on, copy the model, which is
//     still in `input` if that is not `output`, into fresh memory. Both may be freed at once.
//   - The scratch memory is replaced. The old one is used again once all members have said that
//     they have ended the operation. So is memory of the failed operation that is freed. If a
//     member dies before it has said so, they are kept to the end, except on the same host.
//
// Owner thread only. Destroy it when all ranks are done with theirs (after a barrier, say), before
// the fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/kernels/reduce.h"
#include "transports/fabric.h"

namespace dunlin::collective {

// The same on all ranks.
struct PartialOptions {
  std::string name = "world";  // tells those of a job apart
  // Holds what peers send until it is reduced; rounded down to cache lines. A rank allocates it
  // twice, and 2 MiB to copy other memory to: 6 MiB by default. Larger operations use it piece by
  // piece. If it is too small even for that (tens of KiB, more for large groups), they fail with
  // kResourceExhausted.
  std::size_t scratch_bytes = std::size_t{2} << 20;
  // Longer messages are pipelined in segments of this size.
  std::size_t segment_bytes = std::size_t{256} << 10;
  std::string algorithm;  // an all-reduce algorithm that needs no groups; empty: chosen by size
  // The GPU, by its number in this process, whose memory allocate() returns; empty: host memory.
  // Either all ranks have a GPU or none has. The numbers may differ.
  std::optional<int> gpu{};
};

struct PartialCall {
  std::uint64_t number = 0;
  std::vector<Rank> members;  // in any order, this rank included
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // elements; 0: the members only synchronize
  Reduction reduction{DataType::kFloat32, ReduceOp::kAverage};
  std::string label{};  // what the call is for: calls whose labels differ do not match
};

struct PartialRequest {
  std::uint64_t number = 0;  // the call's
};

struct PartialStatistics {
  std::uint64_t operations = 0;  // that have succeeded
  std::uint64_t failures = 0;
  std::size_t peers = 0;  // met
  std::uint64_t programs_generated = 0;
  std::uint64_t programs_found = 0;  // among those kept
  std::size_t programs_kept = 0;
  std::size_t windows = 0;    // pieces of memory that exist: scratch, allocate()
  std::size_t unsettled = 0;  // failed operations whose members may still access memory here
};

class PartialAllReduce {
 public:
  // This is not collective, as ranks meet later. kInvalidArgument for an unknown algorithm or one
  // that needs groups, and for less scratch than a cache line. kUnavailable, or the driver's error,
  // if there is no such GPU or this build has no kernels for it.
  static Result<std::unique_ptr<PartialAllReduce>> create(transport::Fabric& fabric,
                                                          PartialOptions options);
  ~PartialAllReduce();
  PartialAllReduce(const PartialAllReduce&) = delete;
  PartialAllReduce& operator=(const PartialAllReduce&) = delete;

  // Allocates zeroed memory for operations, valid until it is freed or this object is destroyed.
  // Members may use different places of different allocations.
  Result<std::span<std::byte>> allocate(std::size_t bytes);
  // kInvalidArgument while an operation uses the memory. Peers that have reached it keep it mapped
  // to their end.
  Status free(std::span<std::byte> memory);

  // Copies between memory from allocate(): to go on after an error, for instance. Returns when that
  // is done. kInvalidArgument for other memory, sizes that differ, and memory that overlaps.
  Status copy(std::span<std::byte> to, std::span<const std::byte> from);

  // Begins an operation, or queues it behind those that were begun before. Input and output belong
  // to the operation until it has ended. A group of this rank alone copies. After kInvalidArgument
  // or kOutOfRange nothing was begun.
  Result<PartialRequest> start(const PartialCall& call);
  // Returns the error that start(call) would return now because of anything but the memory.
  Status check(const PartialCall& call) const;
  // kBusy until the request has ended, then its outcome once, then kNotFound, as after a wait that
  // has aborted it. Moves all requests on.
  Status test(PartialRequest request);
  // test() until it isn't busy. At the deadline the operation is aborted.
  Status wait(PartialRequest request, Duration timeout);
  // start(), and wait() for at most config.deadline.
  Status run(const PartialCall& call);
  // Moves everything on, as test() does, and as every wait of the library does.
  void progress();

  // The peers that the request waits for, and for what.
  std::vector<transport::Awaited> awaited(PartialRequest request) const;
  // The first of them, without an allocation.
  Rank blocker(PartialRequest request) const;
  PartialStatistics statistics() const;

 private:
  class Impl;
  explicit PartialAllReduce(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin::collective
