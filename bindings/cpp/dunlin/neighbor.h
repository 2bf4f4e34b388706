// Neighbors: each rank averages with, or gathers from, neighbors of its choice (BlueFog, section
// III).
//
//   DUNLIN_ASSIGN(auto neighbors, dunlin::Neighbors::create(job));
//   dunlin::NeighborCall call{.name = "layer 1", .input = x, .output = y, .count = n};
//   call.self_weight = 0.5;
//   call.sources = {{left, 0.5}};
//   call.destinations = {{right, 1.0}};
//   DUNLIN_TRY(neighbors.average(call));              // y = 0.5 x + 0.5 (left's x)
//
// For rank i, output = self_weight * x_i + the sum over its sources j of r_ij * s_ij * x_j, where
// r_ij is the weight that i gives to j (pull) and s_ij the one that j gives to its destination i
// (push). Neighbors may differ from call to call; connections are made when two ranks first meet.
//
// Only the neighbors concerned take part. Calls meet by name: the k-th call of a name in which rank
// j sends to rank i meets the k-th call of that name in which i expects j, whatever else is in
// progress. Calls without a name share the name "".
//
// Errors: if neighbors disagree about size or type, the receiver gets kInvalidArgument, and so does
// the sender, unless its call has already ended; that is logged then. A call that a neighbor never
// joins fails at the deadline and names it. A neighbor's death fails the call with kPeerDead. Other
// calls go on.
//
// The output depends on the values and the order of the sources alone: it is bitwise the same in
// every run.
//
// Small calls that are in progress at the same time are fused: what they have for one neighbor
// travels together. So start the calls that are to travel together before you test or wait for one
// of them.
//
// Input and output may be any host memory; the input is copied once when it is sent. With a GPU,
// those of averages are memory of that GPU, of any allocation. Work on the input has to be complete
// before the call, and the output is complete when the call is over. kInvalidArgument names memory
// that is not of this GPU; gathers need host memory. Owner thread of the job only. Destroy it when
// all ranks are done with theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <dunlin/communicator.h>
#include <dunlin/mixing.h>

namespace dunlin {

struct WeightedRank {
  Rank rank{};
  double weight = 1;
};

struct NeighborCall {
  std::string_view name{};      // copied
  const void* input = nullptr;  // `count` elements
  void* output = nullptr;  // of an average: `count` elements; the input itself, or apart from it
  std::size_t count = 0;   // of a gather: each rank's own
  DataType type = DataType::kFloat32;  // of an average: a floating-point type
  double self_weight = 1;
  std::vector<WeightedRank> sources{};  // a rank at most once; not this one
  std::vector<WeightedRank> destinations{};

  // Sources, destinations and weights as a node graph has them (neighborhood_of()).
  void set_neighbors(const Neighborhood& neighborhood);
};

struct NeighborOptions {
  std::string name = "world";  // distinguishes the objects of one job; the same on all ranks
  // What each pair of ranks that meets keeps in registered memory at either end: `depth` slots of
  // this size, at least 4 KiB. The same on all ranks. Default: 128 KiB, or 4 MiB on a GPU.
  std::optional<std::size_t> slot_bytes{};
  std::uint32_t depth = 4;
  // The bytes of small calls that travel in one message, at most 16 KiB; 0: no fusion. Default:
  // DUNLIN_FUSION_THRESHOLD.
  std::optional<std::size_t> fusion_threshold{};
  // The number of the GPU in this process (CUDA) whose memory is averaged; empty: host memory.
  // Either all ranks have a GPU or none has.
  std::optional<int> gpu{};
};

class Neighbors {
 public:
  // A call that was started.
  struct Request {
    std::uint64_t number = 0;
  };

  // Not collective. The ranks connect later, in their first calls.
  static Result<Neighbors> create(Job& job, const NeighborOptions& options = {});

  Neighbors(Neighbors&&) noexcept;
  Neighbors& operator=(Neighbors&&) noexcept;
  ~Neighbors();

  // Blocking, for Job::deadline().
  Status average(const NeighborCall& call);
  // Gathers every source's input, of any size, in the order of call.sources. Weights have no
  // effect.
  Status gather(const NeighborCall& call, std::vector<Bytes>& gathered);

  // These start the same calls and return. Input, output and `gathered` belong to the call until it
  // is over.
  Result<Request> start_average(const NeighborCall& call);
  Result<Request> start_gather(const NeighborCall& call, std::vector<Bytes>& gathered);
  // Returns kBusy until the call is over, then the call's outcome once, and kNotFound from then on.
  // Advances all calls.
  Status test(Request request);
  // Ends the call in any case: after a timeout, its memory belongs to the caller again, and data
  // that still arrive for it are dropped.
  Status wait(Request request, Duration timeout);
  void progress();

 private:
  friend struct Internal;
  struct Impl;
  explicit Neighbors(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Collective over all ranks of the communicator, which are all ranks of the job: kInvalidArgument
// on all of them, with the first pairs that disagree, unless each rank is a source of exactly those
// ranks that are its destinations.
Status check_neighbors(Communicator& communicator, const NeighborCall& call);

}  // namespace dunlin
