// PartialAllReduce: an all-reduce among the members of a group, which may be any ranks and may
// differ in each call (Ripples / Prague, section 3.2).
//
//   DUNLIN_ASSIGN(auto partial, dunlin::PartialAllReduce::create(job));
//   DUNLIN_ASSIGN(const std::span<float> model, partial.allocate<float>(n));
//   dunlin::PartialCall call{.number = 1, .members = {Rank(0), Rank(3)}};
//   call.input = call.output = model.data();
//   call.count = n;
//   DUNLIN_TRY(partial.run(call));             // on ranks 0 and 3; the others take no part
//
// Numbers: an operation has a number, 1 and up, that all its members know it by. Each rank starts
// its operations in the order of their numbers, which may have gaps, and carries them out one after
// the other. So operations that share a rank never overlap and can't deadlock, and those that share
// none run at the same time.
//
// Memory from allocate() is used without copying. If one member has other memory, all copy.
// Input and output are the same, or don't overlap (else kInvalidArgument). The result is bitwise
// the same on all members.
//
// With a GPU, memory from allocate() is memory of that GPU, and operations take no other memory.
// Work on the input has to be complete before the operation is started, and the output is complete
// when the operation is over.
//
// Errors: kInvalidArgument names the members that call something else under this number. kPeerDead
// names a member that died or left. kDeadlineExceeded or kPeerStalled names one that never came.
// One member may succeed where another fails. Other operations go on. After an error `output` is
// undefined, and `input` is what it was unless it is `output`. Memory from allocate() that took
// part in a failed operation must not be written to any more, since members may still use it: copy
// what is needed into fresh memory and free the old one.
//
// Owner thread of the job only. Destroy it when all ranks are done with theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <dunlin/job.h>

namespace dunlin {

// The same on all ranks.
struct PartialOptions {
  std::string name = "world";  // distinguishes the objects of one job
  // Size of the buffer for data that peers send before it is reduced. A rank has two such buffers,
  // and 2 MiB of staging memory.
  std::size_t scratch_bytes = std::size_t{2} << 20;
  // Longer messages are pipelined in segments of this size.
  std::size_t segment_bytes = std::size_t{256} << 10;
  std::string algorithm{};  // of all-reduce, one that needs no groups; empty: chosen by size
  // The number of the GPU in this process (CUDA) whose memory allocate() returns; empty: host
  // memory. Either all ranks have a GPU or none has.
  std::optional<int> gpu{};
};

struct PartialCall {
  std::uint64_t number = 0;
  std::vector<Rank> members{};  // with this rank, in any order
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // elements; 0: the members just meet
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kAverage;
  std::string label{};  // what the call is for: calls whose labels differ do not match
};

class PartialAllReduce {
 public:
  // An operation that was started.
  struct Request {
    std::uint64_t number = 0;
  };

  // Not collective. The ranks connect later, in their first calls.
  static Result<PartialAllReduce> create(Job& job, const PartialOptions& options = {});

  PartialAllReduce(PartialAllReduce&&) noexcept;
  PartialAllReduce& operator=(PartialAllReduce&&) noexcept;
  ~PartialAllReduce();

  // Zeroed memory for operations, until free() or this object's end. The contents of GPU memory are
  // undefined. Not collective.
  Result<std::span<std::byte>> allocate(std::size_t bytes);
  // kInvalidArgument while an operation uses it.
  Status free(std::span<std::byte> memory);
  template <typename T>
  Result<std::span<T>> allocate(std::size_t count) {
    DUNLIN_ASSIGN(const std::span<std::byte> memory, allocate(count * sizeof(T)));
    return std::span<T>(reinterpret_cast<T*>(memory.data()), count);
  }

  // Copies between memory from allocate(), and returns when that is done. kInvalidArgument for
  // other memory, sizes that differ, and memory that overlaps.
  Status copy(std::span<std::byte> to, std::span<const std::byte> from);

  // Blocking, for Job::deadline().
  Status run(const PartialCall& call);

  // Starts the operation without waiting for it, behind those that were started before. Input and
  // output belong to the operation until it is over. kInvalidArgument, kOutOfRange: nothing was
  // started.
  Result<Request> start(const PartialCall& call);
  // kBusy until the operation is over; its outcome once, and kNotFound from then on. Gives progress
  // to all operations.
  Status test(Request request);
  // Ends the operation one way or the other: after the timeout it is given up.
  Status wait(Request request, Duration timeout);
  void progress();

 private:
  friend struct Internal;
  struct Impl;
  explicit PartialAllReduce(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin
