// Mailboxes: letters between this rank and any other of the job, for services that need few and
// short ones. They travel as notifications on control lanes, so that none queues behind a model.
//
// Each rank has some cells for each peer, a ring that the peer writes in turn: a letter takes one
// for every kInlineBytes of its body, the first ones alone where it is short. Another cell carries
// back how many of ours the peer has taken; nothing is written that wasn't taken before, so nothing
// is lost or overwritten, and a receiver that takes nothing holds up its sender's outbox, which is
// bounded. Letters from one rank to another arrive once, whole and in order; between different
// pairs there is no order. Ranks meet when the first letter is due.
//
// What a peer writes is checked: pieces that can't be end its letters with kCorrupted. What is on
// its way to or from a rank that is gone is dropped. Nothing blocks, but meeting somebody takes a
// round trip to the bootstrap. Owner thread only. Destroy it when all ranks are done with theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/partial/meeting.h"
#include "runtime/bytes.h"
#include "transports/fabric.h"

namespace dunlin::collective::partial {

// Pieces under way per direction. More would let a group of hundreds be told of sooner; each costs
// every rank a cell per peer.
inline constexpr std::uint32_t kMailboxDepth = 4;
// A letter names every rank of the largest job, and something more.
inline constexpr std::size_t kLongestLetter = (std::size_t{4} << 20) + 64;
// Pieces that may wait at a sender: some letters of the longest kind. Beyond it the receiver has
// taken nothing for so long that something is wrong.
inline constexpr std::size_t kLongestOutbox = 4 * (kLongestLetter / transport::kInlineBytes);

struct Letter {
  std::uint64_t tag = 0;  // the user's
  Bytes body;
};

class Mailboxes {
 public:
  // `terms`: what ranks that write to one another must have in common, byte by byte.
  Mailboxes(transport::Fabric& fabric, std::string name, Bytes terms);
  ~Mailboxes();
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;

  // Publishes where peers write to.
  Status publish();

  // Queues a letter. kInvalidArgument: too long; kResourceExhausted: the outbox is full.
  Status send(Rank to, const Letter& letter);
  // The next letter, once it is whole. kCorrupted: what came is none, and no more will be read.
  Result<std::optional<Letter>> receive(Rank from);
  // The peer has taken all that was sent, or is gone.
  bool is_delivered(Rank to) const;

  // Sends what is queued and owed. kInvalidArgument names a peer with other terms.
  Status progress();

 private:
  struct Piece {
    std::uint64_t tag = 0;
    std::uint32_t left = 0;  // bytes of the body, from this piece on
    std::uint8_t size = 0;
    std::byte data[transport::kInlineBytes];
  };
  struct Peer {
    Rank rank;
    transport::Link* link = nullptr;  // null: not met yet
    transport::NotifyId theirs{};     // the first of the cells that we write
    Meeting meeting;
    std::deque<Piece> outbox;
    std::uint64_t sent = 0;   // pieces
    std::uint64_t taken = 0;  // of theirs
    bool owes_receipt = false;
    bool is_at_work = false;  // among at_work_
    bool is_corrupted = false;
    std::uint32_t missing = 0;  // bytes of the letter that comes in
    std::optional<Letter> incoming;
  };
  static constexpr std::uint32_t kCellsPerPeer = kMailboxDepth + 1;

  std::string key(Rank rank) const;
  transport::NotifyId ours(Rank peer) const;
  std::uint64_t acknowledged(const Peer& peer) const;
  void put_to_work(Peer& peer);
  Status meet(Peer& peer);
  Status connect(Peer& peer, const Bytes& offer);
  // kBusy: not all could be said.
  Status speak(Peer& peer);
  Status take(Peer& peer, const transport::NotifyCell& cell);

  transport::Fabric& fabric_;
  std::string name_;
  Bytes terms_;
  transport::NotifyId cells_{};
  bool has_cells_ = false;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank
  std::vector<Peer*> at_work_;
};

}  // namespace dunlin::collective::partial
