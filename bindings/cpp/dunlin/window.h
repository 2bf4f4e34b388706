// Window: memory for deposits of neighbors, for algorithms in which no rank waits for another
// (BlueFog, sections III-C and IV-C: win_create, win_put, win_accumulate, win_update).
//
// Each rank has a tensor and a buffer for each in-neighbor. put() and accumulate() deposit a
// multiple of the tensor in the buffers that out-neighbors keep for this rank. update() combines
// the tensor with this rank's buffers. The same is done with a scalar p, which is 1 at first. If
// the weights at each sender add up to 1, the tensor divided by p converges to the average
// (push-sum).
//
// Windows are one-sided: a rank that computes for seconds delays no other rank. Nothing is lost or
// counted twice. Suppose that ranks use accumulate() and collect() only, and that self_weight and
// the weights of each accumulate() add up to 1. Then the sum of all tensors, buffers and deposits
// on their way stays the same, and so does the sum of p.
//
// Between ranks of a host that share memory, a deposit is in the neighbor's buffer when put() or
// accumulate() returns, without a call of the neighbor. It comes there as a whole: the tensor, p
// and the number of deposits always belong together, also if the depositing rank dies or is stopped
// within the call. Otherwise, the receiver takes deposits in, in its own update(), progress() and
// waits of the library, and they are merged at their sender until they can be delivered.
//
// With WindowOptions::gpu, tensors and buffers are in the memory of that GPU, and its kernels
// combine them. The caller's work on the tensor has to be complete before a call; the call returns
// when its own work is. Ranks of one host on the same GPU deposit without a pass through host
// memory.
//
// put(), accumulate() and update() never wait for a peer. Deposits of a rank that died stay in the
// buffer. put() and accumulate() to a dead rank return kPeerDead, and so does flush() if the rank
// had not taken over all deposits.
//
// Nothing allocates after create(), except for errors. Owner thread of the job only. Destroy it
// when all members are done with theirs: neighbors may still write until then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <dunlin/neighbor.h>

namespace dunlin {

struct WindowOptions {
  std::string name = "window";  // distinguishes the windows of one job; the same on all ranks
  std::uint64_t epoch = 0;      // JobMembers::epoch; the same on all ranks
  // In-neighbors and out-neighbors, with the weights of an update() that names none.
  Neighborhood neighborhood{};
  std::size_t count = 0;  // elements; the same on all ranks
  // What the buffers hold before the first deposit: zeros, or this rank's initial tensor.
  bool is_zeroed = false;
  // Tensors of memory per in-neighbor, where messages are in progress; 1 and 2 count as 3.
  // The same on all ranks.
  std::uint32_t depth = 3;
  // Whether get() can read the tensor, which costs a copy at each put, accumulate and update; the
  // same on all ranks.
  bool is_readable = false;
  // The number of the GPU in this process (CUDA) in whose memory the window is; empty: host memory.
  // Either all ranks have a GPU or none has.
  std::optional<int> gpu{};
};

template <typename T>  // float, double
class Window {
 public:
  struct Update {
    double self_weight = 1;
    // In-neighbors, each once, with their weights. The buffers of others are left alone.
    std::span<const WeightedRank> from{};
    bool reset = false;     // the buffers that were used are zero afterwards
    std::span<T> result{};  // where the result goes; empty: to the tensor and p
  };
  struct Report {
    double p = 0;                // of the result
    std::uint64_t deposits = 0;  // that came into the buffers since their last update
  };
  struct Buffer {
    std::span<const T> tensor;  // valid until the next update(), buffer(), progress() or wait
    double p = 0;
    std::uint64_t deposits = 0;  // since the last update with it
  };

  // Collective over the ranks of the graph. The tensor begins as `initial`, `count` elements in
  // host memory or in that of the GPU, or as zeros if it is empty. kUnavailable says why a GPU
  // cannot be used.
  static Result<Window> create(Job& job, const WindowOptions& options,
                               std::span<const T> initial = {});

  Window(Window&&) noexcept;
  Window& operator=(Window&&) noexcept;
  ~Window();

  // The tensor belongs to the caller between calls. On a GPU, it is an address of the device.
  std::span<T> tensor();
  double p() const;
  void set_p(double p);
  // What an in-neighbor has deposited. This and the other functions return kInvalidArgument for
  // ranks that are not such neighbors.
  Result<Buffer> buffer(Rank from);

  // Deposits weight * tensor: a put replaces what the buffer holds, an accumulate is added to it.
  // Then tensor and p are multiplied by `self_weight`. The tensor may be changed at once. A call
  // that returns an error has done nothing.
  Status put(std::span<const WeightedRank> to, double self_weight = 1);
  Status accumulate(std::span<const WeightedRank> to, double self_weight = 1);
  // result = self_weight * tensor + the sum of weight * buffer, and the same for p. Without
  // arguments, update() uses the weights of the neighborhood.
  Result<Report> update();
  Result<Report> update(const Update& what);
  // Adds all buffers to the tensor and empties them.
  Result<Report> collect();
  // Waits until everything that was deposited is in the buffers. In shared memory, a deposit is
  // there when put() returns. Elsewhere the receivers take it in, in their own update(), in
  // progress() of the window or the job, and in every wait, barriers included. Returns the errors
  // of Job::wait().
  Status flush(Duration timeout);

  // Makes tensor and p what get() of out-neighbors reads from now on; put(), accumulate() and
  // update() do so, too. Does nothing unless the window is readable.
  Status publish();
  // Reads what these in-neighbors have published, and sets the buffer of each to weight * that. The
  // in-neighbors take no part, except over ucx and tcp. kUnavailable over a transport without
  // remote reads.
  Status get(std::span<const WeightedRank> from, Duration timeout);

  // Takes over what has come, and sends what could not be sent before, as Job::progress() does.
  // Call it if this rank does not wait for anything for a long time.
  Status progress();

 private:
  friend struct Internal;
  struct Impl;
  explicit Window(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

extern template class Window<float>;
extern template class Window<double>;

}  // namespace dunlin
