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
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(cells_))
      .number(terms_.scratch_bytes)
      .number(terms_.segment_bytes)
      .text(terms_.algorithm);
  return fabric_.bootstrap().publish(key(fabric_.rank()), writer.take());
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
  ByteReader reader(offer);
  const auto cells = NotifyId(reader.number<std::uint32_t>());
  Terms terms;
  terms.scratch_bytes = reader.number<std::uint64_t>();
  terms.segment_bytes = reader.number<std::uint64_t>();
  terms.algorithm = reader.text();
  if (!reader.at_end() || terms != terms_) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' has other options there than here", name_))
        .with_peer(contact.rank);
  }
  const auto nth = [](Rank rank) {
    return static_cast<std::uint32_t>(rank.index()) * kCellsPerPeer;
  };
  contact.ours = cell_at(cells_, nth(contact.rank));
  contact.theirs = cell_at(cells, nth(fabric_.rank()));
  DUNLIN_ASSIGN(transport::Link* const link, fabric_.link(contact.rank));
  // Every rank's first window is its scratch.
  DUNLIN_ASSIGN(const transport::RemoteRegion* const region, window(contact, 0));
  contact.is_mapped = region->mapped() != nullptr;
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

bool Contacts::is_acknowledged(const Contact& contact) const {
  return contact.said == 0 ||
         fabric_.board().sequence(cell_of(contact.ours, CellOf::kReceipt)) >= contact.said;
}

Status Contacts::greet(Contact& contact, std::uint64_t number, std::uint64_t tag,
                       std::uint32_t size, const Hello& hello) {
  if (!contact.owed.empty() || !is_acknowledged(contact)) return Status::busy();
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

void Contacts::bid(Contact& contact, std::uint64_t number, Farewell farewell) {
  contact.owed.emplace_back(number, farewell);
  if (contact.link == nullptr) {
    if (contact.owed.size() == 1) unmet_.push_back(&contact);
  } else {
    speak(contact);
  }
}

std::optional<Farewell> Contacts::farewell_of(const Contact& contact, std::uint64_t number) const {
  const auto found = contact.farewells.find(number);
  if (found == contact.farewells.end()) return std::nullopt;
  return found->second;
}

void Contacts::listen(Contact& contact) {
  const NotifyCell& cell = fabric_.board().cell(cell_of(contact.ours, CellOf::kFarewell));
  // Acquire: pairs with the publication.
  const std::uint64_t number = cell.sequence.load(std::memory_order_acquire);
  if (number <= contact.heard) return;
  contact.heard = number;
  contact.owes_receipt = true;
  auto& farewells = contact.farewells;
  farewells.erase(farewells.begin(), farewells.upper_bound(forgotten_));
  if (number > forgotten_) farewells.emplace(number, content_of<Farewell>(cell));
}

// What doesn't get through now does next time.
void Contacts::speak(Contact& contact) {
  Notification notification;
  if (contact.owes_receipt) {
    notification.id = cell_of(contact.theirs, CellOf::kReceipt);
    notification.sequence = contact.heard;
    if (!contact.link->control().notify(notification, nullptr).is_busy())
      contact.owes_receipt = false;
  }
  if (contact.owed.empty() || !is_acknowledged(contact)) return;
  const auto& [number, farewell] = contact.owed.front();
  notification.id = cell_of(contact.theirs, CellOf::kFarewell);
  notification.sequence = number;
  notification.inline_data = std::as_bytes(std::span(&farewell, 1));
  if (contact.link->control().notify(notification, nullptr).is_busy()) return;
  contact.said = number;
  contact.owed.pop_front();
}

void Contacts::progress() {
  for (Contact* const contact : met_) {
    listen(*contact);
    if (contact->owes_receipt || !contact->owed.empty()) speak(*contact);
  }
  std::erase_if(unmet_, [&](Contact* contact) {
    if (!fabric_.peers().is_present(contact->rank)) return true;
    return !meet(*contact).is_busy();  // from now on among met_
  });
}

}  // namespace dunlin::collective::partial
