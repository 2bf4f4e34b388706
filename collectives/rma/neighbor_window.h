// NeighborWindow: memory for deposits of the neighbours in a node graph, for algorithms in which
// nobody waits for anybody (BlueFog, sections III-C and IV-C: win_create, win_put, win_accumulate,
// win_update, win_update_then_collect).
//
// Every rank has a tensor ("self") and a buffer for each in-neighbour. put() and accumulate()
// deposit a multiple of self in the buffers that out-neighbours have for this rank; update()
// combines self with this rank's buffers. Everything is done for a scalar p, too, which is 1 at
// first: divided by it, what came of column-stochastic weights on a directed graph is the average
// (push-sum).
//
// Truly one-sided: a rank that computes for seconds without calling anything holds nobody up. What
// can't be delivered meanwhile is merged at its sender (deposit.h). Nothing is lost or counted
// twice: with accumulate(), self_weight + the sum of the weights = 1, and update_then_collect(),
// the sum over all ranks of self, buffers and what is under way stays the same, and so does that of
// p. Deposits reach a buffer in progress() and update() only, so that update() with reset is
// atomic.
//
// get() reads what an in-neighbour has published, without its taking part (over ucx its progress
// answers); the owner may change self at any time, so what is read is the copy that its put(),
// accumulate(), update() into self and publish() make of self and p, for windows that are readable.
// Over a transport without remote reads, get() is kUnavailable.
//
// put(), accumulate() and update() never block and never fail for want of room. An operation counts
// as done when the ends of all its destinations have taken its deposits over, which they do in
// their progress() and update().
//
// A rank that dies takes its own tensor with it, and what was deposited with it. Deposits of a dead
// in-neighbour stay in the buffer; update() goes on. put() and accumulate() to a dead rank are
// kPeerDead, as are test(), wait() and flush() of what it has not taken over.
//
// Nothing allocates between connect() and the end, but for errors. Owner thread only. Destroy it
// when all members are done with theirs (a barrier of the bootstrap), before the fabric: neighbours
// may still write until then.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/neighborhood.h"
#include "collectives/rma/deposit.h"
#include "collectives/rma/snapshot.h"
#include "transports/channel/slot_exchange.h"
#include "transports/fabric.h"

namespace dunlin::collective {

struct WindowOptions {
  std::string name = "window";  // distinguishes windows of one job; the same on all ranks
  std::uint64_t epoch = 0;      // of the membership
  Neighborhood neighborhood;    // with the weights of an update() that names none
  std::size_t count = 0;        // elements; the same on all ranks; tensors of up to 4 GiB - 64 B
  // What the buffers hold before the first deposit: zeros, or this rank's initial tensor.
  bool is_zeroed = false;
  std::uint32_t depth = 2;  // messages under way per edge; the same on all ranks
  // Whether self is published for get(), which costs a copy each time; the same on all ranks.
  bool is_readable = false;
};

struct WeightedPeer {
  Rank peer;
  double weight = 1;
};

// A put() or accumulate().
enum class WindowOperation : std::uint64_t {};

template <typename T>  // float, double
class NeighborWindow {
 public:
  // What an update() does.
  struct Update {
    double self_weight = 1;
    // In-neighbours, each once. Those that are left out, and their buffers, are left alone.
    std::span<const WeightedPeer> from;
    bool reset = false;        // their buffers, and p, are zero afterwards
    std::span<T> result = {};  // where the result goes (`count` elements); empty: to self and p
  };
  struct Report {
    double p = 0;                // of the result
    std::uint64_t deposits = 0;  // that came into these buffers since their last update
  };

  // Collective over the ranks of the graph, in two steps, as SlotExchange. `initial`: `count`
  // elements, or none for zeros.
  static Result<std::unique_ptr<NeighborWindow>> prepare(transport::Fabric& fabric,
                                                         WindowOptions options,
                                                         std::span<const T> initial = {});
  Status connect();
  ~NeighborWindow();
  NeighborWindow(const NeighborWindow&) = delete;
  NeighborWindow& operator=(const NeighborWindow&) = delete;

  // The caller's, between calls.
  std::span<T> self() { return self_; }
  // Whoever keeps it may use self, as any other memory, when the window is gone.
  std::shared_ptr<MemoryRegion> owner_of_self() const;
  double p() const { return p_; }
  void set_p(double p) { p_ = p; }
  // What in-neighbours have deposited, as of the last progress() or update(); until the next one.
  // kInvalidArgument (here and below) for ranks that aren't neighbours.
  struct Buffer {
    std::span<const T> tensor;
    double p = 0;
    std::uint64_t version = 0;  // deposits since the last update() with it
  };
  Result<Buffer> buffer(Rank from);

  // Deposits weight * self: a put takes the place of what the peer's buffer holds, an accumulate is
  // added to it. Then self and p are multiplied by `self_weight`. The caller may change self at
  // once. Errors: nothing was done; kPeerDead: a destination is gone.
  Result<WindowOperation> put(std::span<const WeightedPeer> to, double self_weight = 1) {
    return deposit(DepositKind::kPut, to, self_weight);
  }
  Result<WindowOperation> accumulate(std::span<const WeightedPeer> to, double self_weight = 1) {
    return deposit(DepositKind::kAccumulate, to, self_weight);
  }
  // result = self_weight * self + the sum of weight * buffer, and the same for p. The first takes
  // the neighborhood's weights.
  Result<Report> update();
  Result<Report> update(const Update& what);
  // Adds all buffers to self, and empties them.
  Result<Report> update_then_collect();

  // Makes self and p what get() of out-neighbours reads from now on.
  void publish();
  // Begins to read: the buffer of each of these in-neighbours becomes weight * what it has
  // published, as by a put; p as well. kBusy: another get is under way.
  Status start_get(std::span<const WeightedPeer> from);
  // kBusy until it has ended; its outcome once. Progresses the window. After an error the buffers
  // of those that come later in the list are as they were.
  Status test_get();
  // Gives it up: buffers that it has not come to stay as they are.
  void cancel_get() { gets_.clear(); }
  // Blocking; errors as Fabric::wait. At the deadline it is given up.
  Status get(std::span<const WeightedPeer> from, Duration timeout);

  // Takes over what has come, sends what could not be sent before. Called often, it spares others
  // memory traffic; nobody waits for it but for flush() and wait(). The caller progresses the
  // fabric. Errors (not the death of a peer) concern what neighbours sent and stay.
  Status progress();
  // kBusy until the operation is done, or, for flush(), all are. Both progress() the window. A
  // loss is reported for each operation that has a share in it, and by one flush().
  Status test(WindowOperation operation);
  Status flush();
  // Blocking; errors as Fabric::wait.
  Status wait(WindowOperation operation, Duration timeout);
  Status flush(Duration timeout);
  // Whose end has not taken over what we deposited.
  std::vector<transport::Awaited> awaited() const;

 private:
  struct Wire;

  NeighborWindow(transport::Fabric& fabric, WindowOptions options)
      : fabric_(fabric), options_(std::move(options)) {}
  Status allocate(std::span<const T> initial);
  Status no_neighbor(Rank rank, const char* kind) const;
  Result<WindowOperation> deposit(DepositKind kind, std::span<const WeightedPeer> to,
                                  double self_weight);
  Status check(const Update& what);
  Status import_snapshots();
  Status get_next();
  std::string snapshot_key(Rank rank) const;
  Status take_over();
  void look_for_deaths();

  transport::Fabric& fabric_;
  WindowOptions options_;
  std::unique_ptr<Wire> wire_;
  std::span<T> self_;
  double p_ = 1;
  std::vector<std::span<T>> buffers_;
  std::vector<DepositSender<T>> senders_;
  std::vector<DepositReceiver<T>> receivers_;
  std::vector<std::int32_t> sender_of_;    // by rank; -1: not an out-neighbour
  std::vector<std::int32_t> receiver_of_;  // by rank; -1: not an in-neighbour
  std::vector<WeightedPeer> default_weights_;
  std::vector<WeightedPeer> unit_weights_;

  std::uint64_t operations_ = 0;  // begun
  std::uint64_t updates_ = 0;
  std::vector<std::uint64_t> last_update_;        // by in-neighbour: the update that named it last
  std::vector<bool> is_loss_reported_;            // by out-neighbour: to a flush()
  std::uint64_t peers_seen_ = ~std::uint64_t{0};  // version of the peer table
  // Of a readable window.
  std::unique_ptr<SnapshotWriter> published_;
  std::unique_ptr<SnapshotReader> reader_;  // of in-neighbours, in their order
  std::vector<WeightedPeer> gets_;          // that are to be read; empty: no get is under way
  std::size_t next_get_ = 0;
  std::vector<const T*> inputs_;
  std::vector<T> weights_;
};

extern template class NeighborWindow<float>;
extern template class NeighborWindow<double>;

}  // namespace dunlin::collective
