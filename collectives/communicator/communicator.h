// Communicator: collective operations (all-reduce, broadcast, barrier, ...) among a group of ranks.
//
//   DUNLIN_ASSIGN(const auto comm, Communicator::create(fabric, {}));  // all ranks of the job
//   DUNLIN_ASSIGN(const auto memory, comm->allocate(bytes));           // on all ranks
//   DUNLIN_TRY(comm->all_reduce(memory.data(), memory.data(), count,
//                               {DataType::kFloat32, ReduceOp::kAverage}));
//
// The ranks of a communicator are its members. A member's rank within the communicator is its
// position in CommunicatorOptions::members; `rank` and `root` below are such positions.
//
// Memory. Operations run without copying on memory from allocate(): it is registered with every
// transport, and the members on the same host map it. Any other host memory works as well. The
// communicator then copies input and output in slices through registered memory, which costs about
// one pass over each.
//
// GPUs. A communicator of GPUs takes memory from allocate() only, which is the memory of a GPU. The
// reductions are launches on the GPU, and members that use the same GPU access one another's memory
// by CUDA IPC. The input must be complete when a call is made: finish the streams that write it.
// The output is complete, for all streams, when the operation is.
//
// Matching calls. All members make the same calls in the same order, with the same count, data
// type, reduction, root and algorithm. Either all members pass memory from the same allocation at
// the same offset, or all pass other memory. (In a reduce, and for the input of a broadcast,
// allocation and offset may differ.) If members make different calls, no member reads or writes a
// wrong place, and each member that waits ends with kInvalidArgument, which names both calls. A
// member that hears of the other call ends at once, other members end seconds later.
//
// Order. Operations start in the order of their calls. Several are in progress at a time, and they
// may complete in any order.
//
// Reproducibility. The result of a reduction has the same bits on all members. It has the same bits
// in every run with the same algorithm.
//
// Failure. Once a member is dead, waits return kPeerDead. A wait for a member that does not make
// its call returns at the deadline, with an expiry (kDeadlineExceeded, kPeerStalled) that leaves
// the operation in progress. All other errors of a call that has started are final: later calls
// return them, too. The surviving ranks then create a new communicator.
//
// Threads. Only the thread that owns the fabric may use a communicator; see wait() for `pause`.
// Destroy it before the fabric, after all members have finished their operations (barrier() first).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator/tuning.h"
#include "collectives/kernels/reduce.h"
#include "collectives/schedule/algorithm.h"
#include "transports/fabric.h"

namespace dunlin::collective {

struct CommunicatorOptions {
  // Distinguishes the communicators of one job. The same on all members.
  std::string name = "world";
  // Ranks of the job. Empty: all of them, in ascending order. The same on all members.
  std::vector<Rank> members;
  // Size of the buffer that receives data from peers before this member reduces them. Operations
  // that need more run in slices. The same on all members.
  std::size_t scratch_bytes = std::size_t{16} << 20;
  // Messages longer than this are sent in segments of this size, so that the steps of an algorithm
  // overlap. The same on all members.
  std::size_t segment_bytes = std::size_t{256} << 10;
  // Number of groups for the algorithms "hierarchical" and "2d-tga". Each group consists of
  // consecutive members. 0: the members on one host form a group. The same on all members.
  int groups = 0;
  // The GPU, by its number in this process, whose memory allocate() returns. Empty: host memory.
  // Either all members have a GPU or none has. See "GPUs" above.
  std::optional<int> gpu{};
};

// The arguments of one operation. schedule/problem.h defines how many elements input and output
// hold. In place, both begin at the same address; in reduce-scatter and all-gather, the smaller one
// is the member's own block of the larger one. Otherwise the two must not overlap. Those of an
// all-to-all must not overlap at all. start() refuses such a call with kInvalidArgument.
struct Call {
  Collective collective = Collective::kAllReduce;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // elements
  Reduction reduction{};  // data type; for reductions also the operator
  int root = 0;           // member; for reduce and broadcast
  // Name of an algorithm (schedule/algorithm.h). Empty: choose() decides.
  std::string_view algorithm{};
  // The caller's name for the operation, which has to be the same on all members. It has to live
  // until start() has accepted the call.
  std::string_view name{};
  // The operation copies, even if the memory is from allocate(). Set it if some members may pass
  // such memory and others not. The same on all members, and false for GPU memory.
  bool copies = false;
};

// Identifies an operation that start() has started. Valid as long as the communicator exists.
struct CollectiveRequest {
  // An operation consists of parts, which are numbered through all operations: [first, end).
  std::uint64_t first = 0;
  std::uint64_t end = 0;
};

class Communicator {
 public:
  // Creates the communicator. Collective: all members must call it. Blocks until they have, at most
  // for config.deadline.
  static Result<std::unique_ptr<Communicator>> create(transport::Fabric& fabric,
                                                      CommunicatorOptions options);
  // create() in two steps, for several members that share one thread. prepare() publishes this
  // member's addresses and does not block. Call connect() on the members in the order of their
  // ranks once all have prepared, and before any other method. It then does not block, unless the
  // members map one another's memory: in that case, use a thread per member.
  static Result<std::unique_ptr<Communicator>> prepare(transport::Fabric& fabric,
                                                       CommunicatorOptions options);
  // Waits for the other members at most for config.deadline.
  Status connect();
  // Waits at most for `timeout` and then returns an expiry (waiting/expiry.h). A later call
  // continues where this one stopped.
  Status connect(Duration timeout);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;  // of this member
  int size() const;  // number of members
  // True if all members are on one host and each of them has mapped the memory of all others.
  bool is_all_mapped() const;
  // True if allocate() returns memory of a GPU.
  bool is_on_gpu() const;

  // Allocates memory for operations, of the same size on all members. Collective. Host memory is
  // zeroed; the contents of GPU memory are undefined. The memory exists until free(), which is
  // collective as well, or until the communicator is destroyed.
  Result<std::span<std::byte>> allocate(std::size_t bytes);
  Status free(std::span<std::byte> memory);
  // Returns the owner of memory from allocate(). A caller that keeps the owner may use the memory
  // after free() and after the communicator is destroyed, but no longer in operations without copy.
  Result<std::shared_ptr<MemoryRegion>> owner_of(std::span<const std::byte> memory) const;

  // Starts an operation and returns at once. Input and output belong to the operation until it has
  // completed. Returns kBusy if the queue is full: test an earlier request, then try again.
  Result<CollectiveRequest> start(const Call& call);
  // Progresses the fabric and all operations. Returns kBusy while the operation is in progress, and
  // kPeerDead if a member died before it completed.
  Status test(const CollectiveRequest& request);
  // Blocks until the operation has completed, at most for `timeout`. After an expiry the error
  // names the awaited peer, and the operation stays in progress.
  Status wait(const CollectiveRequest& request, Duration timeout);
  // Like wait(), but calls `pause()` after each poll, which happens at least every 50 ms. During
  // `pause()` other threads may use the fabric and the communicator, one at a time, but may not
  // destroy them. If `pause()` returns anything but ok, wait() returns that; the operation stays in
  // progress.
  Status wait(const CollectiveRequest& request, Duration timeout,
              const std::function<Status()>& pause);
  // The peer that the oldest operation waits for, and what it waits for. Empty: none. For callers
  // that use test() in a loop of their own.
  std::vector<transport::Awaited> awaited() const;
  // The same peer, without an allocation. Rank(): none.
  Rank blocker() const;
  // start(), then wait() for at most config.deadline. If the queue is full, it waits for room
  // before that, likewise for at most config.deadline.
  Status run(const Call& call);
  // Progresses the fabric and all operations. test() and wait() report their errors.
  void progress();

  // The operations below block like run().
  Status all_reduce(const void* input, void* output, std::size_t count, Reduction reduction) {
    return run({Collective::kAllReduce, input, output, count, reduction});
  }
  // Only the root's `output` is written; other members may pass a null pointer.
  Status reduce(const void* input, void* output, std::size_t count, Reduction reduction, int root) {
    return run({Collective::kReduce, input, output, count, reduction, root});
  }
  Status broadcast(void* buffer, std::size_t count, DataType type, int root) {
    return run({Collective::kBroadcast, buffer, buffer, count, {type}, root});
  }
  Status reduce_scatter(const void* input, void* output, std::size_t count, Reduction reduction) {
    return run({Collective::kReduceScatter, input, output, count, reduction});
  }
  Status all_gather(const void* input, void* output, std::size_t count, DataType type) {
    return run({Collective::kAllGather, input, output, count, {type}});
  }
  Status all_to_all(const void* input, void* output, std::size_t count, DataType type) {
    return run({Collective::kAllToAll, input, output, count, {type}});
  }
  Status barrier() { return run({Collective::kBarrier, nullptr, nullptr, 0}); }

  // Creates communicators of the members that pass the same color, ordered by key, then by rank.
  // Collective. Each member gets the communicator of its color. After an error, no member can split
  // this communicator again.
  Result<std::unique_ptr<Communicator>> split(int color, int key);

  // Returns the algorithm that start() uses for this call. The first of these that names one wins:
  // call.algorithm, DUNLIN_ALGORITHMS, a tuning for this shape of job (DUNLIN_TUNING_FILE), and the
  // rules in schedule/choose.h. Returns an error if the algorithm does not exist or needs mapped
  // memory that the members do not have.
  Result<const Algorithm*> choose(const Call& call) const;

  // The remaining methods serve tuner/.
  transport::Fabric& fabric();
  TuningShape shape() const;
  const Grouping& hosts() const;  // the members by host
  // True if choose() may select the algorithm for these members.
  bool suits(const Algorithm& algorithm) const;
  // The program that member `rank` executes for this problem. `element`: bytes per element.
  Result<Program> program(const Algorithm& algorithm, const Problem& problem, std::size_t element,
                          int rank) const;
  // Replaces the tuning that was read from the file. The same on all members.
  void use(Tuning tuning);

 private:
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin::collective
