// Router: matches what neighbors send with the calls that it is for (neighbor_exchange.h),
// whichever comes first, and sends what the calls have for their neighbors. Owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectives/neighbor/call.h"
#include "collectives/neighbor/operation.h"
#include "collectives/neighbor/outbox.h"
#include "collectives/neighbor/relief.h"
#include "collectives/neighbor/ring.h"
#include "collectives/neighbor/wire.h"
#include "transports/fabric.h"

namespace dunlin::collective::neighbor {

struct RouterOptions {
  std::string name;
  std::size_t slot_bytes = 0;
  std::uint32_t depth = 0;
  std::size_t fusion_threshold = 0;  // longest message of several calls in bytes; 0: no fusion
  std::unique_ptr<GpuWork> gpu{};    // whose memory is averaged; null: host memory
};

class Router {
 public:
  Router(transport::Fabric& fabric, RouterOptions options)
      : fabric_(fabric),
        options_(std::move(options)),
        peers_(static_cast<std::size_t>(fabric.size())) {}
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  // Adds a call that has passed check(), and returns its number. Its data wait for the next
  // progress(), unless their message is full.
  Result<std::uint64_t> add(const NeighborCall& call, std::vector<Bytes>* gathered);
  // Whether the call can wait for others to share its message: it is small, and not the only call
  // that hasn't ended, so the caller will call progress() in any case.
  bool can_wait(std::uint64_t number);
  // Null if the call has ended.
  NeighborOperation* find(std::uint64_t number);
  void end(std::uint64_t number);
  // Call it before end(). Data of which nothing has arrived yet then go to the next call of the
  // name that expects their source, instead of this one.
  void give_back(NeighborOperation& operation);
  std::size_t size() const { return operations_.size(); }
  // Whether progress() has anything to do: for calls in progress, or for peers that need answers
  // about calls that have ended here.
  bool needs_progress() const { return !operations_.empty() || owed_ > 0 || owes_acknowledgments_; }
  // Receives what these ranks send, however much of it waits for calls, until something of this
  // name has arrived. One end_seeking() for each begin_seeking().
  Status begin_seeking(std::string_view name, std::span<const Rank> ranks);
  void end_seeking(std::string_view name, std::span<const Rank> ranks);
  // Whether data, or their announcement, have arrived for the next call of this name from the
  // source.
  bool has_arrived(std::string_view name, Rank source) const;
  // Whether a call has named this rank before.
  bool has_met(Rank rank) const { return peers_[rank.index()] != nullptr; }
  // Moves everything on. Sends all that is ready, as far as there is room.
  void progress();
  const NeighborTraffic& traffic() const { return traffic_; }

 private:
  // Identifies a call among those with one peer in one direction.
  using CallId = std::pair<std::uint64_t, std::uint32_t>;  // key, sequence

  // A source's first part of a call, in its slot, or moved out of it if the call was not made yet.
  struct Early {
    Header header;
    std::span<const std::byte> bytes{};
    Bytes moved{};
  };

  struct Peer {
    explicit Peer(std::size_t fusion_threshold) : outbox(fusion_threshold) {}

    Pair pair;
    Outbox outbox;
    std::unordered_map<std::uint64_t, std::uint32_t> sent_calls;  // how many, by key
    std::unordered_map<std::uint64_t, std::uint32_t> received_calls;
    std::unordered_map<std::uint64_t, int> sought;  // how many seek it, by key
    std::map<CallId, Early> early;                  // for calls that were not made yet
    std::map<CallId, Header> wanted;  // requests for data of calls that were not made yet
    std::size_t early_bytes = 0;
    std::vector<Header> replies;  // to be sent when there is room
    // Calls that ended here before anything of them had arrived. What arrives is answered.
    std::set<CallId> unheard;
    std::unordered_map<std::uint64_t, std::uint32_t> heard;  // the last call heard of, by key
    std::deque<CallId> asked;  // calls whose chunks were asked for, in that order
    Relief relief;
  };

  Result<Peer*> peer(Rank rank);
  Peer& peer(const Pair& pair) { return *peers_[pair.peer.index()]; }
  void give_back(const NeighborOperation& operation, Intake& intake);
  // Whether data or an announcement have arrived for the next call of this key.
  static bool has_next(const Peer& peer, std::uint64_t key);
  // Hands the call what neighbors have sent for it before it was made.
  void catch_up(NeighborOperation& operation);

  bool connect(Peer& peer);
  // Whether a connection is needed. Making one blocks while the peer makes no progress.
  bool wants_connection(const Peer& peer) const;
  void receive(Peer& peer);
  void dispatch(Peer& peer, const transport::Message& message);
  void take_chunk(Peer& peer, const transport::Message& message);
  void take(Peer& peer, const Part& part, std::uint64_t sequence);
  // Handles a source's first part. `sequence` is that of the message whose slot holds it, or 0.
  void arrive(NeighborOperation& operation, Intake& intake, Early came, std::uint64_t sequence);
  void want(Peer& peer, const Header& header);
  bool is_needed(const Peer& peer) const;
  static bool is_sought(const Peer& peer);
  void send_first(Peer& peer);
  // Queues a reply, which flush() sends when there is room.
  void reply(Peer& peer, Header header, Kind kind);
  void flush(Peer& peer);
  // A peer that is gone needs no answers.
  void forgive(Peer& peer);
  void look_for_owed_acknowledgments();
  void decline(NeighborOperation& operation);
  // Something of this call has arrived. Sources send in order: nothing of earlier ones will.
  void hear(Peer& peer, CallId id);
  void ask(NeighborOperation& operation, Intake& intake);
  void send_chunks(Peer& peer);
  void watch_peers();
  // Fails all calls after the GPU has failed.
  void watch_gpu();
  // Fails all calls that still need the peer, unless they go on without it.
  void fail_with(const Peer& peer, const Status& why);

  std::pair<NeighborOperation*, Intake*> find_intake(const Peer& peer, CallId id);
  std::pair<NeighborOperation*, Delivery*> find_delivery(const Peer& peer, CallId id);

  transport::Fabric& fabric_;
  RouterOptions options_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null: not met yet
  std::vector<Peer*> met_;
  std::map<std::uint64_t, NeighborOperation> operations_;  // by number
  ActiveCalls active_;
  NeighborTraffic traffic_;
  std::size_t owed_ = 0;  // replies and unheard calls of all peers
  bool owes_acknowledgments_ = false;
  std::uint64_t last_number_ = 0;
  std::uint32_t last_token_ = 0;
};

}  // namespace dunlin::collective::neighbor
