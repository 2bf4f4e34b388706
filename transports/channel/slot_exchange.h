// SlotExchange: the memory and the addresses under a set of directed edges.
//
// For every in-neighbour this process owns `depth` slots of `slot_bytes` in registered memory and
// as many notification cells (the per-sender receive queue of ASAP, section 5); for every
// out-neighbour it holds the counterpart at the peer and one cell of its own for acknowledgements.
// All slots are registered once; peers learn of them through the bootstrap. The queues (queue.h)
// and the versioned slots (versioned.h) are protocols on top. Owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transports/fabric.h"

namespace dunlin::transport {

struct SlotOptions {
  std::string name;            // distinguishes exchanges of one job; the same on all ranks
  std::uint64_t epoch = 0;     // of the membership: exchanges of different epochs never meet
  std::vector<Rank> in;        // who sends here, and whom this process sends to; a rank appears in
  std::vector<Rank> out;       //   its neighbour's `out` exactly if the neighbour is in its `in`
  std::size_t slot_bytes = 0;  // the same on all ranks
  std::uint32_t depth = 1;     // slots per edge, the same on all ranks
};

// Our end of an edge that comes in.
struct InSlots {
  Rank from;
  Link* link = nullptr;  // to the sender
  std::vector<std::byte*> slots;
  NotifyId first_cell{};     // `depth` cells on our board
  NotifyId peer_ack_cell{};  // on the sender's board
};

// Our end of an edge that goes out.
struct OutSlots {
  Rank to;
  Link* link = nullptr;
  std::unique_ptr<RemoteRegion> region;
  std::vector<RemoteSlice> slots;  // at the receiver
  NotifyId peer_first_cell{};      // on the receiver's board
  NotifyId ack_cell{};             // on ours
};

class SlotExchange {
 public:
  // In two steps, so that one thread can set up many ranks. prepare() allocates and publishes;
  // connect() looks the neighbours up and connects to them, which blocks until each of them is
  // prepared (config.deadline for each). kInvalidArgument when a neighbour disagrees about the
  // shape or the edge.
  static Result<std::unique_ptr<SlotExchange>> prepare(Fabric& fabric, SlotOptions options);
  Status connect();
  // kBusy while a neighbour has not prepared; asks the bootstrap once, without waiting.
  Status look();
  ~SlotExchange();
  SlotExchange(const SlotExchange&) = delete;
  SlotExchange& operator=(const SlotExchange&) = delete;

  const SlotOptions& options() const { return options_; }
  std::vector<InSlots>& in() { return in_; }
  std::vector<OutSlots>& out() { return out_; }
  Fabric& fabric() { return fabric_; }

 private:
  SlotExchange(Fabric& fabric, SlotOptions options)
      : fabric_(fabric), options_(std::move(options)) {}
  Status allocate();
  Bytes describe() const;
  std::string key(Rank rank) const;
  Status connect_in(InSlots& edge);
  Status connect_out(OutSlots& edge);

  Fabric& fabric_;
  SlotOptions options_;
  std::size_t stride_ = 0;
  std::unique_ptr<LocalRegion> memory_;  // null without in-neighbours
  std::vector<InSlots> in_;
  std::vector<OutSlots> out_;
  NotifyId cells_{};
  std::size_t cell_count_ = 0;
};

}  // namespace dunlin::transport
