#include "collectives/groups/mailbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/groups/offer.h"

namespace dunlin::collective::groups {

using transport::cell_at;
using transport::Notification;
using transport::NotifyCell;
using transport::NotifyId;

Mailboxes::Mailboxes(transport::Fabric& fabric, std::string name, Bytes terms)
    : fabric_(fabric), name_(std::move(name)), terms_(std::move(terms)) {
  for (int rank = 0; rank < fabric.size(); ++rank) {
    peers_.push_back(std::make_unique<Peer>());
    peers_.back()->rank = Rank(rank);
  }
}

Mailboxes::~Mailboxes() {
  if (has_cells_) fabric_.board().free(cells_, peers_.size() * kCellsPerPeer);
}

std::string Mailboxes::key(Rank rank) const {
  return fmt::format("mailbox/{}/{}", name_, rank.value());
}

NotifyId Mailboxes::ours(Rank peer) const {
  return cell_at(cells_, static_cast<std::uint32_t>(peer.index()) * kCellsPerPeer);
}

Status Mailboxes::publish() {
  DUNLIN_ASSIGN(cells_, fabric_.board().allocate(peers_.size() * kCellsPerPeer));
  has_cells_ = true;
  return fabric_.bootstrap().publish(key(fabric_.rank()), MailboxOffer{cells_, terms_}.encode());
}

Status Mailboxes::meet(Peer& peer) {
  if (peer.link != nullptr) return Status::ok();
  return peer.meeting.meet(fabric_, peer.rank, key(peer.rank),
                           [&](const Bytes& offer) { return connect(peer, offer); });
}

Status Mailboxes::connect(Peer& peer, const Bytes& offer) {
  const auto theirs = MailboxOffer::decode(offer);
  if (!theirs || theirs->terms != terms_) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' has other options there than here", name_))
        .with_peer(peer.rank);
  }
  peer.theirs = cell_at(theirs->first_cell,
                        static_cast<std::uint32_t>(fabric_.rank().index()) * kCellsPerPeer);
  DUNLIN_ASSIGN(peer.link, fabric_.link(peer.rank, Duration::zero()));
  return Status::ok();
}

void Mailboxes::put_to_work(Peer& peer) {
  if (peer.is_at_work) return;
  peer.is_at_work = true;
  at_work_.push_back(&peer);
}

Status Mailboxes::send(Rank to, const MailboxMessage& message) {
  if (message.body.size() > kLongestMessage) {
    return Status(Code::kInvalidArgument, fmt::format("a message of {} bytes, {} at most",
                                                      message.body.size(), kLongestMessage))
        .with_peer(to);
  }
  Peer& peer = *peers_[to.index()];
  if (!fabric_.peers().is_present(to)) return Status::ok();
  if (peer.outbox.size() > kLongestOutbox) {
    return Status(Code::kResourceExhausted,
                  fmt::format("'{}': the rank reads no messages, and {} pieces wait for it", name_,
                              peer.outbox.size()))
        .with_peer(to);
  }
  cut(message, peer.outbox);
  put_to_work(peer);
  return Status::ok();
}

std::uint64_t Mailboxes::acknowledged(const Peer& peer) const {
  // Acquire, in sequence(): pairs with the receipt's publication.
  return fabric_.board().sequence(cell_at(ours(peer.rank), kMailboxDepth));
}

bool Mailboxes::is_delivered(Rank to) const {
  const Peer& peer = *peers_[to.index()];
  if (!fabric_.peers().is_present(to)) return true;
  return peer.outbox.empty() && acknowledged(peer) >= peer.sent;
}

Result<std::optional<MailboxMessage>> Mailboxes::receive(Rank from) {
  Peer& peer = *peers_[from.index()];
  if (const auto read = acknowledged(peer); read > peer.sent && !peer.is_corrupted) {
    return refuse(peer, Status(Code::kCorrupted,
                               fmt::format("it claims to have read {} pieces of messages, of {}",
                                           read, peer.sent)));
  }
  while (!peer.is_corrupted) {
    const auto turn = static_cast<std::uint32_t>(peer.taken % kMailboxDepth);
    const NotifyCell& cell = fabric_.board().cell(cell_at(ours(from), turn));
    // Acquire: pairs with the publication. Until the next piece comes, the cell holds an older one.
    const std::uint64_t sequence = cell.sequence.load(std::memory_order_acquire);
    if (sequence <= peer.taken) break;
    if (sequence != peer.taken + 1) {
      return refuse(peer, Status(Code::kCorrupted,
                                 fmt::format("piece {} of its messages came where {} is due",
                                             sequence, peer.taken + 1)));
    }
    auto message = peer.arriving.add(cell);
    if (!message) return refuse(peer, std::move(message).status());
    ++peer.taken;
    peer.owes_ack = true;
    put_to_work(peer);
    if (*message) return message;
  }
  return std::optional<MailboxMessage>();
}

Status Mailboxes::refuse(Peer& peer, Status why) {
  peer.is_corrupted = true;
  return std::move(why).with_context(fmt::format("'{}'", name_)).with_peer(peer.rank);
}

Status Mailboxes::send_queued(Peer& peer) {
  DUNLIN_TRY(meet(peer));
  Notification notification;
  transport::Lane& lane = peer.link->control();
  if (peer.owes_ack) {
    notification.id = cell_at(peer.theirs, kMailboxDepth);
    notification.sequence = peer.taken;
    DUNLIN_TRY(lane.notify(notification, nullptr));
    peer.owes_ack = false;
  }
  // receive() refuses a peer that claims to have read more than there was.
  const std::uint64_t acknowledged = std::min(this->acknowledged(peer), peer.sent);
  while (!peer.outbox.empty()) {
    if (peer.sent - acknowledged == kMailboxDepth) return Status::busy();
    const Piece& piece = peer.outbox.front();
    notification.id = cell_at(peer.theirs, static_cast<std::uint32_t>(peer.sent % kMailboxDepth));
    notification.sequence = peer.sent + 1;
    notification.tag = piece.tag;
    notification.length = piece.left;
    notification.inline_data = std::span(piece.data, piece.size);
    DUNLIN_TRY(lane.notify(notification, nullptr));
    ++peer.sent;
    peer.outbox.pop_front();
  }
  return Status::ok();
}

Status Mailboxes::progress() {
  Status error;
  std::erase_if(at_work_, [&](Peer* peer) {
    if (error.is_error()) return false;
    Status status = Status::ok();
    if (fabric_.peers().is_present(peer->rank)) status = send_queued(*peer);
    if (status.is_busy()) return false;
    peer->is_at_work = false;
    // The peer table reports ranks that are gone.
    const bool is_gone = status.code() == Code::kPeerDead || status.code() == Code::kClosed;
    if (status.is_error() && !is_gone) error = std::move(status).with_peer(peer->rank);
    peer->outbox.clear();
    return true;
  });
  return error;
}

}  // namespace dunlin::collective::groups
