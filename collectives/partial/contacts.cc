#include "collectives/partial/contacts.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::collective::partial {

using transport::cell_at;
using transport::Notification;
using transport::NotifyCell;
using transport::NotifyId;

namespace {

constexpr NotifyId cell_of(NotifyId first, CellOf which) {
  return cell_at(first, static_cast<std::uint32_t>(which));
}

}  // namespace

Contacts::Contacts(transport::Fabric& fabric, Memory& memory, std::string name, Terms terms)
    : fabric_(fabric), memory_(memory), name_(std::move(name)), terms_(std::move(terms)) {
  for (int rank = 0; rank < fabric.size(); ++rank) {
    contacts_.push_back(std::make_unique<Contact>());
    contacts_.back()->rank = Rank(rank);
  }
}

Contacts::~Contacts() {
  if (has_cells_) fabric_.board().free(cells_, contacts_.size() * kCellsPerPeer);
}

Status Contacts::publish() {
  DUNLIN_ASSIGN(cells_, fabric_.board().allocate(contacts_.size() * kCellsPerPeer));
  has_cells_ = true;
  return fabric_.bootstrap().publish(key(fabric_.rank()), ContactOffer{cells_, terms_}.encode());
}

std::string Contacts::key(Rank rank) const {
  return fmt::format("partial/{}/offer/{}", name_, rank.value());
}

Status Contacts::meet(Contact& contact) {
  if (contact.link != nullptr) return Status::ok();
  return contact.meeting.meet(fabric_, contact.rank, key(contact.rank),
                              [&](const Bytes& offer) { return connect(contact, offer); });
}

Status Contacts::connect(Contact& contact, const Bytes& offer) {
  const auto theirs = ContactOffer::decode(offer);
  if (theirs && theirs->terms.is_on_gpu != terms_.is_on_gpu) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}': the memory of the peer is {} memory, that of this rank {} "
                              "memory",
                              name_, theirs->terms.is_on_gpu ? "GPU" : "host",
                              theirs->terms.is_on_gpu ? "host" : "GPU"))
        .with_peer(contact.rank);
  }
  if (!theirs || theirs->terms != terms_) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' has other options there than here", name_))
        .with_peer(contact.rank);
  }
  const auto nth = [](Rank rank) {
    return static_cast<std::uint32_t>(rank.index()) * kCellsPerPeer;
  };
  contact.ours = cell_at(cells_, nth(contact.rank));
  contact.theirs = cell_at(theirs->first_cell, nth(fabric_.rank()));
  DUNLIN_ASSIGN(transport::Link* const link, fabric_.link(contact.rank, Duration::zero()));
  // Every rank's first window is its scratch.
  DUNLIN_ASSIGN(const transport::RemoteRegion* const region, window(contact, 0));
  contact.is_mapped = memory_.mapped(*region) != nullptr;
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    ExecutorPeer& end = contact.ends[turn];
    end.rank = contact.rank;
    for (const Stream stream : {Stream::kData, Stream::kControl}) {
      ExecutorPeer::Way& way = end.ways[static_cast<std::size_t>(stream)];
      way.lane = stream == Stream::kData ? &link->data() : &link->control();
      way.ours = way_cell(contact.ours, turn, stream);
      way.theirs = way_cell(contact.theirs, turn, stream);
    }
  }
  contact.link = link;
  met_.push_back(&contact);
  return Status::ok();
}

Result<const transport::RemoteRegion*> Contacts::window(Contact& contact, std::uint32_t id) {
  std::unique_ptr<transport::RemoteRegion>& region = contact.windows[id];
  if (region == nullptr) {
    DUNLIN_ASSIGN(region, memory_.import(contact.rank, id));
  }
  return region.get();
}

bool Contacts::has_ended(const Contact& contact, std::uint64_t number) const {
  if (fabric_.board().sequence(cell_of(contact.ours, CellOf::kAbortAck)) >= number) return true;
  // Over shm, what a process has written has landed when it ends.
  return contact.is_mapped && !fabric_.peers().is_present(contact.rank) &&
         fabric_.peers().has_ended(contact.rank);
}

bool Contacts::is_abort_acknowledged(const Contact& contact) const {
  return contact.last_abort_sent == 0 ||
         fabric_.board().sequence(cell_of(contact.ours, CellOf::kAbortAck)) >=
             contact.last_abort_sent;
}

Status Contacts::greet(Contact& contact, std::uint64_t number, std::uint64_t tag,
                       std::uint32_t size, const Hello& hello) {
  if (!may_greet(contact)) return Status::busy();
  Notification notification;
  notification.id = cell_of(contact.theirs, CellOf::kHello);
  notification.sequence = number;
  notification.tag = tag;
  notification.length = size;
  notification.inline_data = std::as_bytes(std::span(&hello, 1));
  return contact.link->control().notify(notification, nullptr);
}

const NotifyCell& Contacts::hello_of(const Contact& contact) const {
  return fabric_.board().cell(cell_of(contact.ours, CellOf::kHello));
}

void Contacts::queue_abort(Contact& contact, std::uint64_t number, AbortNotice notice) {
  contact.queued_aborts.emplace_back(number, notice);
  if (contact.link == nullptr) {
    if (contact.queued_aborts.size() == 1) unmet_.push_back(&contact);
  } else {
    send_queued(contact);
  }
}

std::optional<AbortNotice> Contacts::abort_of(const Contact& contact, std::uint64_t number) const {
  const auto found = contact.aborts.find(number);
  if (found == contact.aborts.end()) return std::nullopt;
  return found->second;
}

void Contacts::receive_aborts(Contact& contact) {
  const NotifyCell& cell = fabric_.board().cell(cell_of(contact.ours, CellOf::kAbort));
  // Acquire: pairs with the publication.
  const std::uint64_t number = cell.sequence.load(std::memory_order_acquire);
  if (number <= contact.last_abort_received) return;
  contact.last_abort_received = number;
  contact.owes_ack = true;
  auto& aborts = contact.aborts;
  aborts.erase(aborts.begin(), aborts.upper_bound(forgotten_));
  if (number > forgotten_) aborts.emplace(number, content_of<AbortNotice>(cell));
}

// Sends an acknowledgment and an abort that are due. What finds no room now is sent next time.
void Contacts::send_queued(Contact& contact) {
  Notification notification;
  if (contact.owes_ack && contact.last_abort_received != running_) {
    notification.id = cell_of(contact.theirs, CellOf::kAbortAck);
    notification.sequence = contact.last_abort_received;
    // On the data lane it follows all that this rank has put into the peer's memory.
    if (!contact.link->data().notify(notification, nullptr).is_busy()) contact.owes_ack = false;
  }
  if (contact.queued_aborts.empty() || !is_abort_acknowledged(contact)) return;
  const auto& [number, notice] = contact.queued_aborts.front();
  notification.id = cell_of(contact.theirs, CellOf::kAbort);
  notification.sequence = number;
  notification.inline_data = std::as_bytes(std::span(&notice, 1));
  if (contact.link->control().notify(notification, nullptr).is_busy()) return;
  contact.last_abort_sent = number;
  contact.queued_aborts.pop_front();
}

void Contacts::progress() {
  for (Contact* const contact : met_) {
    receive_aborts(*contact);
    if (contact->owes_ack || !contact->queued_aborts.empty()) send_queued(*contact);
  }
  std::erase_if(unmet_, [&](Contact* contact) {
    if (!fabric_.peers().is_present(contact->rank)) return true;
    return !meet(*contact).is_busy();  // it is in met_ from now on
  });
}

}  // namespace dunlin::collective::partial
