// Window: a NeighborWindow (collectives/rma/neighbor_window.h) of float or double elements, as part
// of the session.
//
// Threads: any. The background thread takes in what neighbors on other hosts deposit, and retries
// deposits that could not be delivered yet. A window lasts until free() or the session's
// shutdown(), whether or not it is still referred to; later calls return kClosed. The session has
// to outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/session/session.h"
#include "collectives/kernels/data_type.h"
#include "collectives/neighbor/call.h"
#include "collectives/rma/neighbor_window.h"

namespace dunlin::binding {

using collective::WeightedPeer;

class Window {
 public:
  struct Options {
    std::string name = "window";
    std::vector<collective::WeightedRank> sources;  // and their default weights in update()
    std::vector<Rank> destinations;
    collective::DataType type = collective::DataType::kFloat32;  // or kFloat64
    std::size_t count = 0;
    bool is_zeroed = false;
    // The GPU, by its number in this process, in whose memory the window is; empty: host memory.
    // Then all pointers below are to that memory, except that the initial tensor may be in either.
    std::optional<int> gpu{};
  };
  struct Update {
    double self_weight = 1;
    std::span<const WeightedPeer> from;
    bool reset = false;
    void* result = nullptr;  // `count` elements; null: the tensor
  };
  struct Report {
    double p = 0;
    std::uint64_t deposits = 0;
  };
  struct Buffer {
    double p = 0;
    std::uint64_t version = 0;
  };

  // Collective over all ranks, with the same type and count, and on GPUs at all or at none of them.
  // kInvalidArgument at all ranks if the ranks' sources and destinations don't match. `initial`:
  // `count` elements. `mistake`: an error that this rank's caller has found in its arguments, which
  // becomes an error at all ranks.
  static Result<std::shared_ptr<Window>> create(Session& session, Options options,
                                                const void* initial,
                                                const Session::Interrupt& interrupt,
                                                Status mistake = {});
  // Collective: waits until all deposits were taken in and all ranks have called it. The window is
  // freed if this returns ok or kPeerDead.
  Status free(const Session::Interrupt& interrupt);

  const Options& options() const { return options_; }
  // This rank's tensor. Its memory stays valid for as long as its owner is held, also after free().
  const SharedMemory& tensor() const { return tensor_; }

  // These do what those of NeighborWindow do. Without `to`, they go to all out-neighbors, with
  // weight 1.
  Status put(std::optional<std::span<const WeightedPeer>> to, double self_weight);
  Status accumulate(std::optional<std::span<const WeightedPeer>> to, double self_weight);
  Result<Report> update(const Update& what);
  Result<double> p();
  Status set_p(double p);
  Status publish();
  // Copies the buffer for an in-neighbor to `tensor`, `count` elements, unless that is null.
  Result<Buffer> buffer(Rank from, void* tensor);
  Status flush(Duration timeout, const Session::Interrupt& interrupt);
  // Gets are carried out one at a time.
  Status get(std::span<const WeightedPeer> from, Duration timeout,
             const Session::Interrupt& interrupt);

 private:
  class Body;  // under the session's lock
  template <typename T>
  class TypedBody;
  class Flush;
  class Get;

  Window(Session& session, Options options) : session_(session), options_(std::move(options)) {}
  Status build(const void* initial, const Session::Interrupt& interrupt, Status own);
  template <typename Use>
  Status with_body(Use&& use);
  Status deposit(collective::DepositKind kind, std::optional<std::span<const WeightedPeer>> to,
                 double self_weight);

  Session& session_;
  Options options_;
  std::shared_ptr<Body> body_;
  SharedMemory tensor_;
  std::vector<WeightedPeer> all_destinations_;  // with weight 1
};

}  // namespace dunlin::binding
