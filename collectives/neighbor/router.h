// Router: brings what neighbours send to the calls that it is for (neighbor_exchange.h), in either
// order of arrival and call, and sends what the calls have for others. Owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectives/neighbor/call.h"
#include "collectives/neighbor/operation.h"
#include "collectives/neighbor/outbox.h"
#include "collectives/neighbor/ring.h"
#include "collectives/neighbor/wire.h"
#include "transports/fabric.h"

namespace dunlin::collective::neighbor {

struct RouterOptions {
  std::string name;
  std::size_t slot_bytes = 0;
  std::uint32_t depth = 0;
  std::size_t fusion_threshold = 0;  // bytes of a message of several calls; 0: no fusion
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

  // Enlists a call that check() has found right; its number. What it has to send waits for the next
  // progress(), unless the message that it would travel in is full.
  Result<std::uint64_t> add(const NeighborCall& call, std::vector<Bytes>* gathered);
  // Whether progress() can wait until others join the call: it is small, and not the only one that
  // hasn't ended, so that the caller comes back in any case.
  bool can_wait(std::uint64_t number);
  // Null: has ended.
  Operation* find(std::uint64_t number);
  void end(std::uint64_t number);
  // Before end(): the sources of which nothing has come yet are no longer the call's. What they
  // send is for the next call of the name that expects them, begun or to come.
  void give_back(const Operation& operation);
  std::size_t size() const { return operations_.size(); }
  // For those who look by has_come(): until there is something of this name from a rank, what it
  // sends is taken in, however much lies about. Once for each end_seeking().
  Status begin_seeking(std::string_view name, std::span<const Rank> ranks);
  void end_seeking(std::string_view name, std::span<const Rank> ranks);
  // Data, or their announcement, for the next call of this name that will expect the source.
  bool has_come(std::string_view name, Rank source) const;
  // Moves everything on. Nothing that is ready to be sent stays, where there is room for it.
  void progress();
  const NeighborTraffic& traffic() const { return traffic_; }

 private:
  // Which call of a name, of those with one peer in one direction.
  using CallId = std::pair<std::uint64_t, std::uint32_t>;  // key, sequence

  // A source's first part of a call: in its slot, or moved out of it because the call is to
  // come.
  struct Early {
    Header header;
    std::span<const std::byte> bytes{};
    Bytes moved{};
  };

  struct Peer {
    explicit Peer(std::size_t fusion_threshold) : outbox(fusion_threshold) {}

    Pair pair;
    Outbox outbox;
    std::unordered_map<std::uint64_t, std::uint32_t> sent_calls;  // by key, so far
    std::unordered_map<std::uint64_t, std::uint32_t> received_calls;
    std::unordered_map<std::uint64_t, int> sought;  // by key: how many look for it, if any
    std::map<CallId, Early> early;                  // data and announcements for calls to come
    std::map<CallId, Header> wanted;  // what the peer is ready for, and we have not begun
    std::size_t early_bytes = 0;
    std::vector<Header> replies;  // that found no room
    std::deque<CallId> asked;     // deliveries of chunks, in the order in which they were asked for
    std::uint64_t stuck_at = 0;   // the chunk that has been the oldest since
    TimePoint stuck_since{};
  };

  Result<Peer*> peer(Rank rank);
  Peer& peer(const Pair& pair) { return *peers_[pair.peer.index()]; }
  // Clockwise from us: those who send to many begin with different ones.
  std::vector<WeightedRank> clockwise(std::vector<WeightedRank> ranks) const;
  void give_back(const Operation& operation, const Intake& intake);
  // Data or an announcement are there for the next call of this key.
  static bool has_next(const Peer& peer, std::uint64_t key);
  // Gives the call what neighbours have said of it before it was made.
  void catch_up(Operation& operation);

  bool connect(Peer& peer);
  void receive(Peer& peer);
  void dispatch(Peer& peer, const transport::Message& message);
  void take_chunk(Peer& peer, const transport::Message& message);
  void take(Peer& peer, const Part& part, std::uint64_t sequence);
  // Of a source's first part of a call; `sequence`: of the message whose slot it is in, or 0.
  void arrive(Operation& operation, Intake& intake, Early came, std::uint64_t sequence);
  void want(Peer& peer, const Header& header);
  bool is_needed(const Peer& peer) const;
  static bool is_sought(const Peer& peer);
  void send_first(Peer& peer);
  // By the end of this progress(), or later, when there is room: flush().
  void reply(Peer& peer, Header header, Kind kind);
  void flush(Peer& peer);
  void decline(Operation& operation);
  void ask(Operation& operation, Intake& intake);
  void send_chunks(Peer& peer);
  void make_room(Peer& peer);
  void make_room(Ring& ring);
  void watch_peers();
  // Fails what is under way with the peer.
  void fail_with(const Peer& peer, const Status& why);

  std::pair<Operation*, Intake*> find_intake(const Peer& peer, CallId id);
  std::pair<Operation*, Delivery*> find_delivery(const Peer& peer, CallId id);

  transport::Fabric& fabric_;
  RouterOptions options_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null: not met yet
  std::vector<Peer*> met_;
  std::map<std::uint64_t, Operation> operations_;  // by number
  // Those that aren't over, in the order of their start; with their keys, for the search.
  std::vector<std::pair<std::uint64_t, Operation*>> active_;
  NeighborTraffic traffic_;
  std::uint64_t last_number_ = 0;
  std::uint32_t last_token_ = 0;
};

}  // namespace dunlin::collective::neighbor
