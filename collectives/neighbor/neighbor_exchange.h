// NeighborExchange: each rank averages with neighbors of its choice, or gathers from them (BlueFog,
// section III).
//
//   auto exchange = NeighborExchange::create(fabric, {});
//   NeighborCall call{.name = "layer 1", .input = x, .output = y, .count = n};
//   call.self_weight = 0.5;
//   call.sources = {{left, 0.5}};
//   call.destinations = {{right, 1.0}};
//   exchange->run(call);                               // y = 0.5 x + 0.5 (left's x)
//
// For rank i, output = self_weight * x_i + sum over its sources j of r_ij * s_ij * x_j, where r_ij
// is the weight that i gives j (pull) and s_ij the weight that j gives its destination i (push).
// The neighbors may differ from call to call. Two ranks connect when they first meet.
//
// Only the neighbors concerned take part. The k-th call of a name in which rank j sends to rank i
// meets the k-th call of that name in which i expects j, whatever other calls either has in
// progress and in whatever order they were started. All calls without a name share the name "".
//
// If neighbors disagree about size or type, both calls fail with kInvalidArgument. (A source whose
// call has ended already logs a warning instead.) A call that a neighbor never joins fails at its
// deadline, and names that neighbor; check_neighbors.h lets all ranks find out before anything is
// sent. The death of a neighbor fails a call with kPeerDead, unless NeighborCall::on_death says how
// it goes on. Other calls go on, and the data that a failed call has for its other destinations are
// still sent.
//
// The output depends only on the values and on the order of the sources, not on timing: it is
// bitwise the same in every run.
//
// Small calls that are in progress at the same time are fused: their data for one neighbor share
// messages, whatever other neighbors each call has, and without negotiation (BlueFog, section VI-C,
// negotiates). Data stay in the caller's memory until their message leaves. It leaves at once if no
// other call is outstanding, when it is full, and otherwise with the next progress(), test() or
// wait(). So start the calls that should share messages, then call one of these, and don't wait for
// other things in between.
//
// GPUs. With NeighborOptions::gpu, input and output of averages are memory of that GPU, of any
// allocation. The slots are there, too: data are copied into a destination's slots by the GPU, and
// averaged from there by one launch for all sources, with the bits that the average has on the CPU.
// Work on input and output has to be complete before start(), or stand before the call's events
// (NeighborCall::input_ready); the output is complete when the request has ended. start() returns
// kInvalidArgument for memory that is not of this GPU, or not aligned to the type, and for more
// than 127 sources; for a gather, which needs host memory; and the transports' reasons if none of
// them takes the GPU's memory. After an error of the driver, which names its call, the call has
// failed; if it was one that tells whether work is complete, all calls fail from then on. Neighbors
// that wait for data that this rank cannot send get kIoError, which names it.
//
// Any host memory can be used. Data are copied once on the way out, into the destination's slots
// where these are mapped here, and averaged in the slots. Larger data travel in pieces that stay in
// the caches. Owner thread only. Destroy it when all ranks are done with theirs (after a barrier,
// say), before the fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/neighbor/call.h"
#include "transports/fabric.h"

namespace dunlin::collective {

struct NeighborOptions {
  std::string name = "world";  // tells the exchanges of a job apart; the same on all ranks
  // Each pair of ranks that has met keeps `depth` slots of this size in registered memory at either
  // end. The same on all ranks. Default: 128 KiB, or 4 MiB in the memory of a GPU.
  std::optional<std::size_t> slot_bytes{};
  std::uint32_t depth = 4;
  // Longest message of several small calls in bytes, at most 16 KiB; 0: no fusion. Each call counts
  // with its data, rounded up to 8 bytes, and 40 bytes more. Default: config.fusion_threshold.
  // Ranks may differ.
  std::optional<std::size_t> fusion_threshold{};
  // The GPU, by its number in this process, whose memory is averaged. Empty: host memory. Either
  // all ranks have a GPU or none has.
  std::optional<int> gpu{};
};

struct NeighborRequest {
  std::uint64_t number = 0;
};

class NeighborExchange {
 public:
  // This is not collective, as ranks meet later. kInvalidArgument for slots below 4 KiB. With a
  // GPU, kUnavailable says why it cannot be used.
  static Result<std::unique_ptr<NeighborExchange>> create(transport::Fabric& fabric,
                                                          NeighborOptions options);
  ~NeighborExchange();
  NeighborExchange(const NeighborExchange&) = delete;
  NeighborExchange& operator=(const NeighborExchange&) = delete;

  // Begins an average of floating-point data. Its message may wait for other calls; see above.
  // Input and output belong to the call until it has ended.
  Result<NeighborRequest> start(const NeighborCall& call);
  // Begins to gather the input of every source, of any size, into `gathered`, in the order of the
  // call's sources. Weights, `output` and self_weight are ignored.
  Result<NeighborRequest> start_gather(const NeighborCall& call, std::vector<Bytes>& gathered);

  // These are for callers that gather from whichever rank has sent first. has_arrived() says
  // whether data, or their announcement, are here for the next gather of this name from this
  // source. A rank of which 16 MiB have arrived for calls that were not made yet has to wait;
  // between begin_seeking() and end_seeking(), each called once with the same arguments, its data
  // are received beyond that bound until something of this name has arrived.
  Status begin_seeking(std::string_view name, std::span<const Rank> ranks);
  void end_seeking(std::string_view name, std::span<const Rank> ranks);
  bool has_arrived(std::string_view name, Rank source) const;

  // kBusy until the request has ended, then its outcome once, then kNotFound. Moves all requests
  // on.
  Status test(NeighborRequest request);
  // Returns what test() does, but moves nothing on. It is for callers with many requests.
  Status outcome(NeighborRequest request);
  // Waits until the request has ended. It is over afterwards in any case: after an error, deadlines
  // included, its memory is the caller's again, and data that still arrive for it are dropped.
  Status wait(NeighborRequest request, Duration timeout);
  // Cancels the request at once, as wait() does at its deadline; no effect if it has ended.
  // `missed` is about sources of which nothing has arrived yet. Data that were on their way are
  // dropped.
  void give_up(NeighborRequest request, Missed missed);
  // start(), or start_gather(), and wait() for at most config.deadline.
  Status run(const NeighborCall& call);
  Status gather(const NeighborCall& call, std::vector<Bytes>& gathered);
  // Moves everything on, as test() does.
  void progress();

  std::size_t outstanding() const;
  // Whether progress() has anything to do: calls are in progress, or neighbors need answers about
  // calls that have ended here.
  bool needs_progress() const;
  NeighborTraffic traffic() const;
  // The peers that the request waits for, and for what. Peers that are gone are left out.
  std::vector<transport::Awaited> awaited(NeighborRequest request) const;
  // The first of them, without an allocation.
  Rank blocker(NeighborRequest request) const;

 private:
  class Impl;
  explicit NeighborExchange(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin::collective
