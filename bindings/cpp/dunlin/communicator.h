// Communicator: the collectives of a group of ranks.
//
//   DUNLIN_ASSIGN(auto world, dunlin::Communicator::create(job));
//   DUNLIN_ASSIGN(std::span<float> gradients, world.allocate<float>(count));
//   DUNLIN_TRY(world.all_reduce(gradients, dunlin::ReduceOp::kAverage));
//
// All ranks make the same calls in the same order, with the same counts, types, operations and
// algorithms. In one call, either all ranks pass memory of the same allocation at the same offset,
// which is used without copying, or all ranks pass other memory, which is copied in and out (about
// one pass over each buffer). If calls differ, the ranks that wait get kInvalidArgument, which
// names both calls, and nothing is written to a wrong place.
//
// With P ranks; counts are elements, `type` is that of the elements:
//
//   all_reduce      in: count      out: count        out = op over all ranks' in
//   reduce          in: count      out: count        the same at the root; others' out isn't used
//   broadcast       buffer: count                    the root's buffer, everywhere
//   reduce_scatter  in: P * count  out: count        block r of op over all ranks' in, at rank r
//   all_gather      in: count      out: P * count    block r is rank r's in
//   all_to_all      in: P * count  out: P * count    block s at rank r is block r of rank s
//
// In place: `out` is `in`; in reduce_scatter and all_gather the smaller buffer is the rank's own
// block of the larger one. all_to_all has no such form. Buffers that overlap otherwise are refused
// with kInvalidArgument.
//
// The result is bitwise the same on all ranks, and from run to run for the same algorithm.
//
// GPUs: a communicator of GPUs takes memory from allocate() only, which is memory of a GPU that the
// host must not access, and whose contents are undefined at first. Reductions are kernels, and
// members that use the same GPU access one another's memory by CUDA IPC. The input must be complete
// when a call is made, so synchronize the stream that writes it. The output is complete, for every
// stream, when the operation is. Calls return kUnavailable if there is no CUDA driver, or if this
// build has no kernels.
//
// Errors: kDeadlineExceeded or kPeerStalled when a member does not make its call in time: the
// operation continues, and wait() may be called again. All other errors of a call that was started
// are final, kPeerDead above all: later calls return them, too, and the survivors make a new
// communicator. Blocking calls wait for at most Job::deadline(). Owner thread of the job only.
// Destroy the communicator when all members are done with theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <dunlin/job.h>

namespace dunlin {

struct CommunicatorOptions {
  // Distinguishes the communicators of one job; the same on all members.
  std::string name = "world";
  // In the order of their ranks in the communicator; empty: the members of the job.
  std::vector<Rank> members{};
  // Size of the buffer for data that peers send before it is reduced. Larger operations go in
  // slices. The same on all members.
  std::size_t scratch_bytes = std::size_t{16} << 20;
  // Longer messages are pipelined in segments of this size; the same on all members.
  std::size_t segment_bytes = std::size_t{256} << 10;
  // Number of groups of consecutive members for the algorithms "hierarchical" and "2d-tga"; 0: one
  // group per host. The same on all members.
  int groups = 0;
  // The number of the GPU in this process (CUDA) whose memory allocate() returns; empty: host
  // memory. Either all members have a GPU or none has. See "GPUs" above.
  std::optional<int> gpu{};
};

class Communicator {
 public:
  // An operation that was started.
  struct Request {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
  };

  // Collective over the members. Blocks until all of them have made the call.
  static Result<Communicator> create(Job& job, const CommunicatorOptions& options = {});
  // Collective: members that give the same color form a communicator, ordered by key, then by rank.
  Result<Communicator> split(int color, int key);

  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  int rank() const;  // in this communicator
  int size() const;

  // Collective. Allocates memory of the same size on all members. Host memory is zeroed; the
  // contents of GPU memory are undefined. The memory lasts until free(), which is collective as
  // well, or until the communicator is destroyed.
  Result<std::span<std::byte>> allocate(std::size_t bytes);
  Status free(std::span<std::byte> memory);
  template <typename T>
  Result<std::span<T>> allocate(std::size_t count) {
    DUNLIN_ASSIGN(const std::span<std::byte> memory, allocate(count * sizeof(T)));
    return std::span<T>(reinterpret_cast<T*>(memory.data()), count);
  }

  // Names the next operation, so that members that make calls in different orders, such as those
  // for the gradients of two layers, do not mix them up. If the members' calls have different
  // names, each member that waits ends with kInvalidArgument, which names both calls. Calls are
  // matched by their order, not by their names. The next operation's call uses the name up, whether
  // it succeeds or not, unless it returns kBusy.
  void name_next(std::string name);

  // The operations, blocking.
  Status all_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op) {
    return run(Kind::kAllReduce, in, out, count, type, op, 0);
  }
  template <typename T>
  Status all_reduce(std::span<T> values, ReduceOp op) {  // in place
    return all_reduce(values.data(), values.data(), values.size(), data_type_of<T>(), op);
  }
  Status reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                int root) {
    return run(Kind::kReduce, in, out, count, type, op, root);
  }
  Status broadcast(void* buffer, std::size_t count, DataType type, int root) {
    return run(Kind::kBroadcast, buffer, buffer, count, type, ReduceOp::kSum, root);
  }
  Status reduce_scatter(const void* in, void* out, std::size_t count, DataType type, ReduceOp op) {
    return run(Kind::kReduceScatter, in, out, count, type, op, 0);
  }
  Status all_gather(const void* in, void* out, std::size_t count, DataType type) {
    return run(Kind::kAllGather, in, out, count, type, ReduceOp::kSum, 0);
  }
  Status all_to_all(const void* in, void* out, std::size_t count, DataType type) {
    return run(Kind::kAllToAll, in, out, count, type, ReduceOp::kSum, 0);
  }
  Status barrier() {
    return run(Kind::kBarrier, nullptr, nullptr, 0, DataType::kUint8, ReduceOp::kSum, 0);
  }

  // These start an operation and return. The buffers belong to the operation until it is over.
  // Operations are started in the same order on all ranks and may end in any order. kBusy: too many
  // are in progress; test one, then try again.
  Result<Request> start_all_reduce(const void* in, void* out, std::size_t count, DataType type,
                                   ReduceOp op) {
    return start(Kind::kAllReduce, in, out, count, type, op, 0);
  }
  template <typename T>
  Result<Request> start_all_reduce(std::span<T> values, ReduceOp op) {  // in place
    return start_all_reduce(values.data(), values.data(), values.size(), data_type_of<T>(), op);
  }
  Result<Request> start_reduce(const void* in, void* out, std::size_t count, DataType type,
                               ReduceOp op, int root) {
    return start(Kind::kReduce, in, out, count, type, op, root);
  }
  Result<Request> start_broadcast(void* buffer, std::size_t count, DataType type, int root) {
    return start(Kind::kBroadcast, buffer, buffer, count, type, ReduceOp::kSum, root);
  }
  Result<Request> start_reduce_scatter(const void* in, void* out, std::size_t count, DataType type,
                                       ReduceOp op) {
    return start(Kind::kReduceScatter, in, out, count, type, op, 0);
  }
  Result<Request> start_all_gather(const void* in, void* out, std::size_t count, DataType type) {
    return start(Kind::kAllGather, in, out, count, type, ReduceOp::kSum, 0);
  }
  Result<Request> start_all_to_all(const void* in, void* out, std::size_t count, DataType type) {
    return start(Kind::kAllToAll, in, out, count, type, ReduceOp::kSum, 0);
  }
  Result<Request> start_barrier() {
    return start(Kind::kBarrier, nullptr, nullptr, 0, DataType::kUint8, ReduceOp::kSum, 0);
  }

  // kBusy until the operation is over. Progresses all operations.
  Status test(const Request& request);
  // Waits until the operation is over. After a timeout it continues.
  Status wait(const Request& request, Duration timeout);
  Status wait(const Request& request);  // for Job::deadline()
  void progress();

  // Sets the all-reduce algorithm of later calls, such as "ring", "2d-tga" or "hierarchical".
  // Empty: DUNLIN_ALGORITHMS, a tuning file, or the size decides. The same on all members.
  // kInvalidArgument lists the names.
  Status use_all_reduce(std::string_view algorithm);

 private:
  friend struct Internal;
  struct Impl;
  enum class Kind : std::uint8_t {
    kAllReduce,
    kReduce,
    kBroadcast,
    kReduceScatter,
    kAllGather,
    kAllToAll,
    kBarrier,
  };
  explicit Communicator(std::unique_ptr<Impl> impl);
  Status run(Kind kind, const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
             int root);
  Result<Request> start(Kind kind, const void* in, void* out, std::size_t count, DataType type,
                        ReduceOp op, int root);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin
