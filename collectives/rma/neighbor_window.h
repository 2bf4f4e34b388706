// NeighborWindow: memory in which the neighbors in a node graph deposit tensors, for algorithms in
// which no rank waits for another (BlueFog, sections III-C and IV-C: win_create, win_put,
// win_accumulate, win_update, win_update_then_collect).
//
// Every rank has a tensor ("self") and a buffer for each in-neighbor. put() and accumulate()
// deposit a multiple of self in the buffers that out-neighbors have for this rank. update()
// combines self with this rank's buffers. A scalar p, which is 1 at first, goes through the same
// operations. With column-stochastic weights on a directed graph, self divided by p is the average
// (push-sum).
//
// The operations are one-sided: a rank that computes for seconds without calling anything holds no
// other rank up. Nothing is lost or counted twice. If only accumulate() is used, with self_weight
// and the weights adding up to 1, and update_then_collect(), the sum over all ranks of self,
// buffers and deposits on their way stays the same, and so does the sum of p.
//
// If the neighbor's memory is mapped (shared memory), a deposit is in its buffer when put() or
// accumulate() returns. The neighbor need not call anything, and the depositing rank may end. A
// deposit comes into the buffer as a whole: buffer(), update() and reset see a tensor, p and
// version of the same deposits. If a rank dies or is stopped within a deposit, the deposit has no
// effect, and no other rank waits for it (mapped_edge.h).
//
// Otherwise, deposits reach a buffer in the neighbor's progress() and update(), and are merged at
// their sender until then (deposit.h). The first `depth` of them are in the neighbor's memory
// before that.
//
// get() reads what an in-neighbor has published, without its taking part (over ucx and tcp, its
// progress() answers). The owner rank may change self at any time. So what is read is a copy of
// self and p that put(), accumulate(), update() into self and publish() make, if the window is
// readable. Over a transport without remote reads, get() returns kUnavailable.
//
// put(), accumulate() and update() never wait for a peer, and never fail for lack of room. An
// operation is done when its deposits are in the buffers of all its destinations.
//
// GPUs. With WindowOptions::gpu, self, the buffers and results are in the memory of that GPU, and
// its kernels do the work, with the bits of host memory. Work of the caller on self has to be
// complete before a call, and a call returns when its own work on the GPU is complete. Between
// ranks of one host that use the same GPU, deposits go from GPU memory to GPU memory, in one launch
// per neighbor and without a call of the neighbor. All other deposits travel in messages through
// host memory, over any transport; the receiver's progress() copies them to its GPU, and waits for
// that. get() reads from ranks on the same GPU only. There are at most 127 in-neighbors. After an
// error of the driver, or work that has not ended within config.deadline, all later calls that need
// the GPU return that error, and the tensors are undefined: some deposits may have been made. The
// GPU may still write to an update's result until the window is destroyed, which waits for it.
//
// When a rank dies, its own tensor is lost, and so is what was deposited with it. Deposits of a
// dead in-neighbor stay in the buffer, and update() goes on. put() and accumulate() to a dead rank
// return kPeerDead, as do test(), wait() and flush() of deposits that it has not taken over.
//
// Nothing is allocated between connect() and the end, except for errors. Owner thread only. Destroy
// it when all members are done with theirs (after a barrier of the bootstrap), before the fabric:
// neighbors may write until then.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/rma/deposit.h"
#include "collectives/rma/gpu_window.h"
#include "collectives/rma/tensor_passes.h"
#include "collectives/rma/window_snapshots.h"
#include "collectives/stochastic/neighborhood.h"
#include "transports/channel/slot_exchange.h"
#include "transports/fabric.h"

namespace dunlin::collective {

struct WindowOptions {
  std::string name = "window";  // tells the windows of a job apart; the same on all ranks
  std::uint64_t epoch = 0;      // of the membership; the same on all ranks
  Neighborhood neighborhood;    // its weights are those of an update() without arguments
  std::size_t count = 0;  // elements; the same on all ranks; a tensor has almost 4 GiB at most
  // What the buffers hold before the first deposit: zeros, or this rank's initial tensor.
  bool is_zeroed = false;
  // Tensors of memory per edge at the receiver, where messages are in progress; 1 and 2
  // count as 3. The same on all ranks.
  std::uint32_t depth = 3;
  // Whether self is published for get(), which takes a copy each time; the same on all ranks.
  bool is_readable = false;
  // The GPU, by its number in this process, in whose memory the window is. Empty: host memory.
  // Either all ranks have a GPU or none has.
  std::optional<int> gpu{};
};

struct WeightedPeer {
  Rank peer;
  double weight = 1;
};

// Identifies a put() or accumulate().
enum class WindowOperation : std::uint64_t {};

template <typename T>  // float, double
class NeighborWindow {
 public:
  // What an update() is to do.
  struct Update {
    double self_weight = 1;
    // In-neighbors, each at most once. The buffers of others are left as they are.
    std::span<const WeightedPeer> from;
    bool reset = false;        // these buffers and their p are zero afterwards
    std::span<T> result = {};  // receives the result (`count` elements); empty: self and p do
  };
  struct Report {
    double p = 0;                // of the result
    std::uint64_t deposits = 0;  // into these buffers since their last update
  };

  // Collective over the ranks of the graph, in two steps as SlotExchange: prepare() on all, then
  // connect(). `initial` has `count` elements, in host memory or in that of the GPU, or none for
  // zeros. With a GPU, kUnavailable says why it cannot be used.
  static Result<std::unique_ptr<NeighborWindow>> prepare(transport::Fabric& fabric,
                                                         WindowOptions options,
                                                         std::span<const T> initial = {});
  Status connect();
  ~NeighborWindow();
  NeighborWindow(const NeighborWindow&) = delete;
  NeighborWindow& operator=(const NeighborWindow&) = delete;

  // The rank's tensor. The caller may read and write it between calls; on a GPU, by its own work
  // there.
  std::span<T> self() { return self_; }
  // Keeps the memory of self alive after the window is gone.
  std::shared_ptr<MemoryRegion> owner_of_self() const;
  double p() const { return p_; }
  void set_p(double p) { p_ = p; }
  // What an in-neighbor has deposited: in mapped memory, as of this call; otherwise, as of the last
  // progress() of the fabric or window, or the last update(). Valid until the next one, which any
  // wait may call, or the next buffer() of this rank. kInvalidArgument (here and below) for a rank
  // that is no neighbor.
  struct Buffer {
    std::span<const T> tensor;
    double p = 0;
    std::uint64_t version = 0;  // deposits since the last update() with this buffer
  };
  Result<Buffer> buffer(Rank from);
  // The same, and copies the tensor to `copy`, which has `count` elements where the window is.
  Result<Buffer> buffer(Rank from, std::span<T> copy);

  // Deposits weight * self with each peer: put() replaces what the peer's buffer holds,
  // accumulate() adds to it. Then self and p are multiplied by `self_weight`. The caller may change
  // self at once. After an error nothing was done. kPeerDead: a destination is gone.
  Result<WindowOperation> put(std::span<const WeightedPeer> to, double self_weight = 1) {
    return deposit(DepositKind::kPut, to, self_weight);
  }
  Result<WindowOperation> accumulate(std::span<const WeightedPeer> to, double self_weight = 1) {
    return deposit(DepositKind::kAccumulate, to, self_weight);
  }
  // result = self_weight * self + the sum of weight * buffer, and the same for p. Without
  // arguments, the weights are those of the neighborhood.
  Result<Report> update() { return update({options_.neighborhood.self_weight, default_weights_}); }
  Result<Report> update(const Update& what);
  // Adds all buffers to self, and sets them to zero.
  Result<Report> update_then_collect() { return update({1, unit_weights_, true}); }

  // Publishes self and p: get() of out-neighbors reads them from now on.
  Status publish() { return snapshots_ ? snapshots_->publish(p_) : Status::ok(); }
  // Begins to read. The buffer of each of these in-neighbors becomes weight * what it has
  // published, as by a put(), and so does its p. kBusy: another get is in progress.
  Status start_get(std::span<const WeightedPeer> from);
  // kBusy until the get has ended, then its outcome once. Progresses the window. After an error the
  // buffers of the in-neighbors that come later in the list are as they were.
  Status test_get();
  // Cancels the get. Buffers that were not read yet stay as they are.
  void cancel_get() { gets_.clear(); }
  // Blocks until the get has ended; errors as Fabric::wait(). At the deadline the get is canceled.
  Status get(std::span<const WeightedPeer> from, Duration timeout);

  // Takes over messages that have arrived, and sends what could not be sent before. The fabric's
  // progress() calls it, and with it every wait of the library. Between mapped memory there is
  // nothing to do. Elsewhere, frequent calls save the neighbors memory traffic, but only their
  // flush() and wait() depend on them. Errors concern what neighbors have sent, not their death;
  // later calls return them again.
  Status progress();
  // kBusy until the operation is done; for flush(), until all operations are. Both progress the
  // window while something is outstanding. If deposits were lost, test() says so for each of their
  // operations, and one flush() does.
  Status test(WindowOperation operation);
  Status flush();
  // Block until test() or flush() isn't busy. Returns the errors of Fabric::wait().
  Status wait(WindowOperation operation, Duration timeout);
  Status flush(Duration timeout);
  // The peers that have not taken over what this rank deposited.
  std::vector<transport::Awaited> awaited() const;

 private:
  struct LaneState;

  NeighborWindow(transport::Fabric& fabric, WindowOptions options)
      : fabric_(fabric), options_(std::move(options)) {}
  Status allocate(std::span<const T> initial);
  Status allocate_tensors();
  Status allocate_messages(std::size_t unmapped);
  std::optional<EdgeMemory> mapped_edge(std::size_t out) const;
  EdgeMemory own_edge(std::size_t in) const;
  Status no_neighbor(Rank rank, const char* kind) const;
  Result<WindowOperation> deposit(DepositKind kind, std::span<const WeightedPeer> to,
                                  double self_weight);
  Status check_room(const char* what, std::span<T> room) const;
  Status check(const Update& what);
  void get_next();
  std::string topic(const char* what) const;  // of the bootstrap, for this window
  Status take_over();
  void check_peers();

  transport::Fabric& fabric_;
  WindowOptions options_;
  std::unique_ptr<LaneState> lane_state_;
  TensorPasses<T> passes_;
  std::unique_ptr<GpuWindow> gpu_;  // null: in host memory
  std::span<T> self_;
  std::vector<T> host_self_;  // of a window on a GPU: for edges that are not mapped; else empty
  double p_ = 1;
  std::vector<std::span<T>> buffers_;
  std::vector<DepositSender<T>> senders_;
  std::vector<DepositReceiver<T>> receivers_;
  std::vector<std::int32_t> sender_of_;    // by rank; -1: not an out-neighbor
  std::vector<std::int32_t> receiver_of_;  // by rank; -1: not an in-neighbor
  std::vector<WeightedPeer> default_weights_;
  std::vector<WeightedPeer> unit_weights_;

  std::uint64_t operations_ = 0;  // number of the last one
  std::uint64_t updates_ = 0;
  std::vector<std::uint64_t> last_update_;        // by in-neighbor: the last update that named it
  std::vector<bool> is_loss_reported_;            // by out-neighbor: by a flush()
  std::uint64_t peers_seen_ = ~std::uint64_t{0};  // version of the peer table
  std::optional<transport::Fabric::Task> task_;   // calls progress(), once connected
  // Of readable windows:
  std::unique_ptr<WindowSnapshots<T>> snapshots_;  // of the in-neighbors, in their order
  std::vector<WeightedPeer> gets_;                 // to be read; empty: no get is in progress
  std::size_t next_get_ = 0;
  std::vector<const T*> inputs_;
  std::vector<T> weights_;
};

extern template class NeighborWindow<float>;
extern template class NeighborWindow<double>;

}  // namespace dunlin::collective
