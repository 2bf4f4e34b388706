// Communicator: the collectives of a group of ranks.
//
//   auto comm = Communicator::create(fabric, {});
//   auto gradients = comm->allocate(bytes);              // on all ranks
//   comm->all_reduce(gradients->data(), gradients->data(), count, {DataType::kFloat32, kAverage});
//
// Memory from allocate() is what operations run on without copying: it is registered with every
// transport, and peers on this host have it mapped. Any other memory works as well; it is copied in
// and out by slices, which costs about a pass over each.
//
// All ranks make the same calls in the same order, with the same counts, types and algorithms, and
// with memory from the same allocations at the same places, or all with other memory. Operations
// are started in order and may end in any; several are under way at a time.
//
// The result is bitwise the same on all ranks, and from run to run for the same algorithm.
//
// A member that dies or stays away makes whoever waits for it fail, with kPeerDead or at the
// deadline; after the first error every call returns it: make a new communicator of the survivors.
// Owner thread only (as the fabric). Destroy it when all members are done with it (a barrier, say),
// before the fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/kernels/reduce.h"
#include "collectives/schedule/algorithm.h"
#include "collectives/tuner/tuning.h"
#include "transports/fabric.h"

namespace dunlin::collective {

struct CommunicatorOptions {
  std::string name = "world";  // distinguishes communicators of one job; the same on all members
  std::vector<Rank> members;   // in the order of their ranks within the communicator; empty: all
  // For what peers send before it can be reduced; the same on all members. Larger operations go in
  // slices.
  std::size_t scratch_bytes = std::size_t{16} << 20;
  // Longer messages are pipelined in segments of this; the same on all members.
  std::size_t segment_bytes = std::size_t{256} << 10;
  // How "hierarchical" and "2d-tga" divide the members: so many groups of neighbouring ranks; 0:
  // the ranks of one host are a group.
  int groups = 0;
};

// One operation. Sizes of input and output: schedule/problem.h. Input and output are the same or,
// where problem.h says so, one is within the other: in place; else they don't overlap.
struct Call {
  Collective collective = Collective::kAllReduce;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // elements
  Reduction reduction{};
  int root = 0;
  std::string_view algorithm{};  // empty: chosen
};

// An operation that was started. The communicator outlives its use.
struct Request {
  std::uint64_t first = 0;  // numbers of its parts: [first, end)
  std::uint64_t end = 0;
};

class Communicator {
 public:
  // Collective over the members. Blocks until all of them have come (config.deadline).
  static Result<std::unique_ptr<Communicator>> create(transport::Fabric& fabric,
                                                      CommunicatorOptions options);
  // The same in two steps, for members that share a thread: connect(), in the order of their ranks,
  // doesn't block once all have prepared, unless they have one another's memory mapped. Nothing
  // else is called before it. With a patience of its own, it ends with an expiry where a member's
  // part isn't there by then, and goes on when it is called again.
  static Result<std::unique_ptr<Communicator>> prepare(transport::Fabric& fabric,
                                                       CommunicatorOptions options);
  Status connect();
  Status connect(Duration patience);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;
  // All members are on this host, and every one has the others' memory mapped.
  bool is_all_mapped() const;

  // Collective: zeroed memory of `bytes` for operations, the same size on all members. It lasts
  // until it is freed (collective) or the communicator goes.
  Result<std::span<std::byte>> allocate(std::size_t bytes);
  Status free(std::span<std::byte> memory);
  // What holds memory from allocate(). Who keeps it may use the memory, as any other, when it was
  // freed or the communicator is gone.
  Result<std::shared_ptr<MemoryRegion>> owner_of(std::span<const std::byte> memory) const;

  // Starts an operation. Its memory is the operation's until it has ended. kBusy: too many are
  // under way; test one, then try again.
  Result<Request> start(const Call& call);
  // kBusy until it has ended, or a member is gone. Gives progress to all operations.
  Status test(const Request& request);
  Status wait(const Request& request, Duration timeout);
  // `pause()` is called after every look, and at least every 50 ms. While it runs, other threads
  // may use fabric and communicator, in turns, but not destroy them. Anything but ok from it ends
  // the wait, with that; the operation goes on.
  Status wait(const Request& request, Duration timeout, const std::function<Status()>& pause);
  // Whom the oldest operation waits for, and for what; for those who wait by themselves.
  std::vector<transport::Awaited> awaited() const;
  // start(), then wait() for config.deadline.
  Status run(const Call& call);
  // Moves everything on, as test() does.
  void progress();

  Status all_reduce(const void* input, void* output, std::size_t count, Reduction reduction) {
    return run({Collective::kAllReduce, input, output, count, reduction});
  }
  // Other ranks' `output` isn't touched.
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

  // Collective: members with the same color form a communicator, ordered by key, then by rank.
  Result<std::unique_ptr<Communicator>> split(int color, int key);

  // What an operation of this kind and size is done with: what it names; else what
  // DUNLIN_ALGORITHMS names; else what a tuning of this shape measured (DUNLIN_TUNING_FILE); else
  // what usually suits.
  Result<const Algorithm*> choose(const Call& call) const;

  // For tuners:
  transport::Fabric& fabric();
  TuningShape shape() const;
  const Grouping& hosts() const;
  // Whether it may be chosen without being named.
  bool suits(const Algorithm& algorithm) const;
  // Of member `rank`, as operations carry it out here; `element`: bytes.
  Result<Program> program(const Algorithm& algorithm, const Problem& problem, std::size_t element,
                          int rank) const;
  // In the place of the tuning that was found; the same on all members.
  void use(Tuning tuning);

 private:
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin::collective
