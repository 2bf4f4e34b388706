// Window: a NeighborWindow (neighbor_window.h) of the runtime, of any type of elements that there
// is.
//
// Any thread. The background thread takes over what neighbours deposit, and moves on what could not
// be delivered. A window lasts until free() or the runtime's shutdown(), whether or not somebody
// holds it; every call after that is kClosed. The runtime outlives its use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/bindings/runtime.h"
#include "collectives/data_type.h"
#include "collectives/neighbor/call.h"
#include "collectives/rma/neighbor_window.h"

namespace dunlin::binding {

using collective::WeightedPeer;

class Window {
 public:
  struct Options {
    std::string name = "window";
    std::vector<collective::WeightedRank> sources;  // and what update() gives them by default
    std::vector<Rank> destinations;
    collective::DataType type = collective::DataType::kFloat32;  // or kFloat64
    std::size_t count = 0;
    bool is_zeroed = false;
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

  // Collective over all ranks, with the same type and count; neighbours that don't match are
  // kInvalidArgument at all of them. `initial`: `count` elements.
  static Result<std::shared_ptr<Window>> create(Runtime& runtime, Options options,
                                                const void* initial,
                                                const Runtime::Interrupt& interrupt);
  // Collective: when all deposits are taken over and all ranks have come. Gone unless an error is
  // returned; kPeerDead: gone all the same.
  Status free(const Runtime::Interrupt& interrupt);

  const Options& options() const { return options_; }
  // Self. Valid, though no window's any more, for as long as somebody holds it.
  const SharedMemory& tensor() const { return tensor_; }

  // As those of NeighborWindow. No weights: all out-neighbours, with 1.
  Status put(std::optional<std::span<const WeightedPeer>> to, double self_weight);
  Status accumulate(std::optional<std::span<const WeightedPeer>> to, double self_weight);
  Result<Report> update(const Update& what);
  Result<double> p();
  Status set_p(double p);
  Status publish();
  // `tensor`: of `count` elements, or null.
  Result<Buffer> buffer(Rank from, void* tensor);
  Status flush(Duration timeout, const Runtime::Interrupt& interrupt);
  // One at a time: a second one waits for its turn.
  Status get(std::span<const WeightedPeer> from, Duration timeout,
             const Runtime::Interrupt& interrupt);

 private:
  class Body;  // under the runtime's lock
  template <typename T>
  class TypedBody;
  class Flush;
  class Get;

  Window(Runtime& runtime, Options options) : runtime_(runtime), options_(std::move(options)) {}
  Status build(const void* initial, const Runtime::Interrupt& interrupt);
  template <typename Use>
  Status with_body(Use&& use);
  Status deposit(collective::DepositKind kind, std::optional<std::span<const WeightedPeer>> to,
                 double self_weight);

  Runtime& runtime_;
  Options options_;
  std::shared_ptr<Body> body_;
  SharedMemory tensor_;
  std::vector<WeightedPeer> everybody_;  // all out-neighbours, with 1
};

}  // namespace dunlin::binding
