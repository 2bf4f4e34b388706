// NeighborExchange: each rank averages with, or gathers from, neighbours of its choice (BlueFog,
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
// is the weight that i gives j (pull) and s_ij the one that j gives its destination i (push). The
// neighbours may be others in each call; connections are made when two ranks first meet.
//
// Nobody but the neighbours concerned takes part. The k-th call of a name in which rank j sends to
// rank i meets the k-th call of that name in which i expects j, whatever else either has under way
// and in whatever order it was started; calls without a name are of one name, "".
//
// Where neighbours disagree about size or type, both calls end with kInvalidArgument (a source that
// had sent all and ended just warns). A call that a neighbour never joins ends at the deadline,
// and names him; to have all ranks find out before anything is sent: check_neighbors.h. A
// neighbour's death ends a call with kPeerDead. Other calls go on, and what a failed one has for
// others is sent all the same.
//
// The output depends on the values and the order of the sources alone, not on timing: it is bitwise
// the same in every run.
//
// Small calls that are under way at the same time are fused: what they have for one neighbour
// travels together, whatever other neighbours each of them has, and nobody is asked (BlueFog,
// section VI-C, without its negotiation). What is sent stays in the caller's memory until the
// message leaves: at once where no other call is yet to be ended, when the message is full, and
// otherwise with the next progress(), test() or wait(). So start what is to travel together, then
// call one of these; don't wait for others elsewhere in between.
//
// Any memory will do. It is copied once on the way out, into the destination's slots where they are
// mapped here, and averaged straight from the slots. Larger data go in pieces that stay in
// the caches. Owner thread only. Destroy it when all ranks are done with theirs (a barrier, say),
// before the fabric.
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
  std::string name = "world";  // distinguishes exchanges of one job; the same on all ranks
  // What each pair of ranks that meets keeps in registered memory at either end: so many slots of
  // this size. The same on all ranks.
  std::size_t slot_bytes = std::size_t{128} << 10;
  std::uint32_t depth = 4;
  // What a message of several small calls may have, with 40 bytes and a fill to 8 for each of them;
  // 0: no fusion; at most 16 KiB. Default: config.fusion_threshold. Ranks may differ.
  std::optional<std::size_t> fusion_threshold{};
};

struct NeighborRequest {
  std::uint64_t number = 0;
};

class NeighborExchange {
 public:
  // Not collective: ranks meet later. kInvalidArgument for slots of less than 4 KiB.
  static Result<std::unique_ptr<NeighborExchange>> create(transport::Fabric& fabric,
                                                          NeighborOptions options);
  ~NeighborExchange();
  NeighborExchange(const NeighborExchange&) = delete;
  NeighborExchange& operator=(const NeighborExchange&) = delete;

  // Begins an average of floating-point data. What is sent of it may wait for others: above. Input
  // and output are the call's until it has ended.
  Result<NeighborRequest> start(const NeighborCall& call);
  // Begins to gather: every source's input, of whatever size, into `gathered`, in the order of the
  // call's sources. Weights, `output` and self_weight don't count.
  Result<NeighborRequest> start_gather(const NeighborCall& call, std::vector<Bytes>& gathered);

  // For who gathers from whichever rank has sent first. has_come(): data, or their announcement,
  // are there for the next gather of this name that names the source. From begin_seeking() to
  // end_seeking(), once each and with the same arguments, progress() sees to that: where so much
  // lies about of a rank that it would have to wait (16 MiB), what it sends is taken in all the
  // same until there is something of this name.
  Status begin_seeking(std::string_view name, std::span<const Rank> ranks);
  void end_seeking(std::string_view name, std::span<const Rank> ranks);
  bool has_come(std::string_view name, Rank source) const;

  // kBusy until the request has ended; its outcome once, kNotFound from then on. Moves all requests
  // on.
  Status test(NeighborRequest request);
  // The same, of what has been moved on so far; for those who have many requests.
  Status outcome(NeighborRequest request);
  // Ends the request one way or the other: after an error, late or missing neighbours included,
  // its memory is the caller's again, and what still comes for it is dropped.
  Status wait(NeighborRequest request, Duration timeout);
  // Ends the request at once, as wait() does when the time is over; nothing where it has ended.
  // `missed` is about a source of which nothing has come yet: what was under way is dropped.
  void give_up(NeighborRequest request, Missed missed);
  // start() and wait() for config.deadline.
  Status run(const NeighborCall& call);
  Status gather(const NeighborCall& call, std::vector<Bytes>& gathered);
  // Moves everything on, as test() does.
  void progress();

  std::size_t under_way() const;
  NeighborTraffic traffic() const;
  // Whom of those who are there the request waits for, and for what.
  std::vector<transport::Awaited> awaited(NeighborRequest request) const;

 private:
  class Impl;
  explicit NeighborExchange(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin::collective
