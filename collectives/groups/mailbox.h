// Mailboxes: messages between this rank and any other rank of the job, for services that send few
// and short ones. They travel as notifications on control lanes, so that none queues behind a
// model.
//
// Each rank has a ring of cells for each peer, which the peer writes in turn. A message takes one
// cell for every kInlineBytes of its body, and at least one. Another cell carries back how many
// cells the receiver has read. A cell is written again only after it was read, so nothing is lost
// or overwritten. If a receiver reads nothing, messages wait in the sender's outbox, which is
// bounded. Messages from one rank to another arrive once, whole and in order. There is no order
// between different pairs of ranks. Two ranks connect when the first message is due.
//
// What a peer writes is checked: after an impossible piece or acknowledgment, receive() returns
// kCorrupted once and reads nothing more from that peer. Messages to or from a rank that is gone
// are dropped. Nothing blocks, except that connecting to a peer takes a round trip to the
// bootstrap. Owner thread only. Destroy it when all ranks are done with theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/groups/pieces.h"
#include "collectives/waiting/meeting.h"
#include "runtime/bytes.h"
#include "transports/fabric.h"

namespace dunlin::collective::groups {

// Pieces in progress per direction. More would speed up notices of groups with hundreds of members,
// but each one takes a cell per peer on every rank.
inline constexpr std::uint32_t kMailboxDepth = 4;
// How many pieces may wait at a sender: those of four messages of the longest kind. If there are
// more, the receiver has read nothing for too long.
inline constexpr std::size_t kLongestOutbox = 4 * (kLongestMessage / transport::kInlineBytes);

class Mailboxes {
 public:
  // `terms`: bytes that have to be the same on ranks that send to one another.
  Mailboxes(transport::Fabric& fabric, std::string name, Bytes terms);
  ~Mailboxes();
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;

  // Publishes the cells that peers write.
  Status publish();

  // Queues a message. kInvalidArgument: it is too long; kResourceExhausted: the outbox is full.
  Status send(Rank to, const MailboxMessage& message);
  // The next message, if all of it has arrived. kCorrupted: the peer has written an impossible
  // piece or acknowledgment; nothing more is read from it.
  Result<std::optional<MailboxMessage>> receive(Rank from);
  // Whether the peer has read all that was sent, or is gone.
  bool is_delivered(Rank to) const;
  // Whether pieces or acknowledgments wait for progress().
  bool needs_progress() const { return !at_work_.empty(); }

  // Sends queued pieces and acknowledgments. kInvalidArgument names a peer with other terms.
  Status progress();

 private:
  struct Peer {
    Rank rank;
    transport::Link* link = nullptr;  // null: not met yet
    transport::NotifyId theirs{};     // the first of the peer's cells that this rank writes
    Meeting meeting;
    std::deque<Piece> outbox;
    std::uint64_t sent = 0;   // pieces
    std::uint64_t taken = 0;  // pieces of the peer's that were read
    bool owes_ack = false;
    bool is_at_work = false;  // among at_work_
    bool is_corrupted = false;
    PieceAssembly arriving;
  };
  static constexpr std::uint32_t kCellsPerPeer = kMailboxDepth + 1;

  std::string key(Rank rank) const;
  transport::NotifyId ours(Rank peer) const;
  std::uint64_t acknowledged(const Peer& peer) const;
  void put_to_work(Peer& peer);
  Status meet(Peer& peer);
  Status connect(Peer& peer, const Bytes& offer);
  // Reads nothing more from the peer.
  Status refuse(Peer& peer, Status why);
  // kBusy: not all could be said.
  Status send_queued(Peer& peer);

  transport::Fabric& fabric_;
  std::string name_;
  Bytes terms_;
  transport::NotifyId cells_{};
  bool has_cells_ = false;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank
  std::vector<Peer*> at_work_;
};

}  // namespace dunlin::collective::groups
