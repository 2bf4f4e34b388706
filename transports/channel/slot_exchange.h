// SlotExchange: the receive slots of this process, and the addresses of the slots at its peers, for
// a set of directed edges of a node graph.
//
// Along an edge, one rank sends to another. For every in-neighbor, this process owns `depth` slots
// of `slot_bytes` in registered memory and as many notification cells: the per-sender receive queue
// of ASAP, section 5. For every out-neighbor, it holds the addresses of its slots and cells at that
// peer, and one cell of its own, where acknowledgments arrive. All slots are registered once, and
// published through the bootstrap. The protocols on top are the queues (queue.h) and the versioned
// slots (versioned.h). Owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/bootstrap/neighbor_values.h"
#include "runtime/gpu/driver.h"
#include "transports/fabric.h"

namespace dunlin::transport {

struct SlotOptions {
  std::string name;         // identifies the exchange within the job; the same on all ranks
  std::uint64_t epoch = 0;  // of the membership; exchanges of different epochs do not connect
  // The ranks that send to this one, and those that this one sends to. A rank's `out` must contain
  // a neighbor if and only if the neighbor's `in` contains the rank.
  std::vector<Rank> in;
  std::vector<Rank> out;
  std::size_t slot_bytes = 0;  // the same on all ranks
  std::uint32_t depth = 1;     // slots per edge; the same on all ranks
  // The GPU in whose memory the slots are. Null: host memory. Either all ranks have a GPU or none
  // has. With a GPU, messages of every size travel through their slots, and payloads may be in GPU
  // memory.
  std::shared_ptr<GpuDriver> gpu{};
  int gpu_device = 0;
  // What the messages mean, such as "float32 x 1000, average"; the same on all ranks. Slots of
  // equal size may hold different things, and the ends would misread each other's messages.
  std::string terms{};
};

// The receiver's end of an edge to this process.
struct InSlots {
  Rank from;
  Link* link = nullptr;  // to the sender
  std::vector<std::byte*> slots;
  NotifyId first_cell{};     // the first of `depth` cells on this process's board
  NotifyId peer_ack_cell{};  // on the sender's board
};

// The sender's end of an edge from this process.
struct OutSlots {
  Rank to;
  Link* link = nullptr;
  std::unique_ptr<RemoteRegion> region;
  std::vector<RemoteSlice> slots;  // at the receiver
  NotifyId peer_first_cell{};      // on the receiver's board
  NotifyId ack_cell{};             // on this process's board
};

class SlotExchange {
 public:
  // An exchange is made in two steps, so that one thread can set up many ranks. prepare() allocates
  // the slots and publishes their addresses.
  static Result<std::unique_ptr<SlotExchange>> prepare(Fabric& fabric, SlotOptions options);
  // Connects to the neighbors. Blocks until all of them have prepared, for at most config.deadline
  // per neighbor. kInvalidArgument if a neighbor has other options or does not have the edge.
  Status connect();
  // The same without the neighbors that are gone: their edges get no link.
  Status connect_present();
  // Returns ok once all neighbors have prepared, and kBusy until then. Asks the bootstrap once and
  // does not wait.
  Status check_neighbors();
  ~SlotExchange();
  SlotExchange(const SlotExchange&) = delete;
  SlotExchange& operator=(const SlotExchange&) = delete;

  const SlotOptions& options() const { return options_; }
  // The largest message that travels inside its notification.
  std::size_t most_inline_bytes() const { return options_.gpu == nullptr ? kInlineBytes : 0; }
  std::vector<InSlots>& in() { return in_; }
  std::vector<OutSlots>& out() { return out_; }
  Fabric& fabric() { return fabric_; }

 private:
  SlotExchange(Fabric& fabric, SlotOptions options);
  Status allocate();
  Result<std::unique_ptr<LocalRegion>> allocate_slots(std::size_t bytes);
  Bytes describe() const;
  Status fetch();
  Status connect_in(InSlots& edge);
  Status connect_out(OutSlots& edge);
  // Whether the peer is gone, so that connecting to it has failed. Waits a moment for the news.
  bool is_gone(Rank peer);

  Fabric& fabric_;
  SlotOptions options_;
  bootstrap::NeighborValues offers_;
  std::size_t stride_ = 0;
  std::unique_ptr<LocalRegion> memory_;  // the slots; null without in-neighbors
  std::vector<InSlots> in_;
  std::vector<OutSlots> out_;
  NotifyId cells_{};
  std::size_t cell_count_ = 0;
};

}  // namespace dunlin::transport
