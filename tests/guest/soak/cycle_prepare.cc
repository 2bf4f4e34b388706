#include "tests/guest/soak/cycle.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::soak {

using transport::Fabric;
using transport::kBothLanes;
using transport::kLaneKinds;
using transport::LaneKind;
using transport::NotifyId;

namespace {

constexpr std::size_t kStreamBytes = kSlots * kSlotStride;
constexpr std::uint32_t kStreamCells = kSlots + 1;  // the last one is for acknowledgments
constexpr std::uint32_t kMeetingCells =
    2;  // used in turns, since a rank can be ahead by one meeting
constexpr std::uint32_t kPeerCells = kLaneKinds * kStreamCells + kMeetingCells;
constexpr std::size_t kProbers = 2;

LaneKind other(LaneKind kind) {
  return kind == LaneKind::kData ? LaneKind::kControl : LaneKind::kData;
}

// Some cycles have very short queues, so that operations often wait for room. Some sleep while
// there is nothing to do, and some do not.
Config vary(Config config, std::uint64_t cycle) {
  if (cycle % 3 == 1) config.verbs_queue_depth = 2;
  config.wait = cycle % 2 == 0 ? WaitMode::kYield : WaitMode::kEvent;
  return config;
}

}  // namespace

// Layout -----------------------------------------------------------------------------------------

std::uint64_t Cycle::seed_of_stream(Rank from, Rank to, LaneKind lane) const {
  return seed_of(options_.seed, options_.number, from.value(), to.value(), index_of(lane));
}

std::uint64_t Cycle::seed_of_library(Rank owner, std::uint64_t round) const {
  return seed_of(options_.seed, options_.number, owner.value(), round);
}

NotifyId Cycle::slot_cells(NotifyId first, Rank from, LaneKind lane) const {
  return cell_at(first, static_cast<std::uint32_t>(from.index()) * kPeerCells +
                            static_cast<std::uint32_t>(index_of(lane)) * kStreamCells);
}

NotifyId Cycle::acknowledgment(NotifyId first, Rank from, LaneKind lane) const {
  return cell_at(slot_cells(first, from, lane), kSlots);
}

NotifyId Cycle::meeting_cell(NotifyId first, Rank from) const {
  return cell_at(first, static_cast<std::uint32_t>(from.index() + 1) * kPeerCells - kMeetingCells +
                            static_cast<std::uint32_t>(meetings_ % kMeetingCells));
}

// Beginning --------------------------------------------------------------------------------------

Cycle::Cycle(Bootstrap& bootstrap, const Config& config, const CycleOptions& options)
    : options_(options),
      config_(vary(config, options.number)),
      bootstrap_(bootstrap, fmt::format("cycle {}/", options.number)),
      peers_(static_cast<std::size_t>(bootstrap.size())) {}

Result<std::unique_ptr<Cycle>> Cycle::create(Bootstrap& bootstrap, const Config& config,
                                             const CycleOptions& options) {
  std::unique_ptr<Cycle> cycle(new Cycle(bootstrap, config, options));
  DUNLIN_TRY(cycle->prepare());
  return cycle;
}

// Operations in progress have their completions in this object.
Cycle::~Cycle() {
  if (is_finished_) return;
  for (Peer& peer : peers_) {
    if (peer.link == nullptr) continue;
    for (const LaneKind kind : kBothLanes) lane_of(*peer.link, kind).close();
  }
}

Status Cycle::prepare() {
  DUNLIN_ASSIGN(fabric_, Fabric::create(bootstrap_, config_, clock_));
  DUNLIN_ASSIGN(incoming_, fabric_->allocate(ranks() * kLaneKinds * kStreamBytes));
  DUNLIN_ASSIGN(outgoing_, fabric_->allocate(ranks() * kLaneKinds * kStreamBytes));
  DUNLIN_ASSIGN(landing_, fabric_->allocate(ranks() * kProbers * kLargestGet));
  DUNLIN_ASSIGN(cells_, fabric_->board().allocate(ranks() * kPeerCells));
  std::fill_n(incoming_->data(), incoming_->size(), kWiped);
  ByteWriter offer;
  offer.number(static_cast<std::uint32_t>(cells_)).blob(incoming_->descriptor());
  DUNLIN_TRY(bootstrap_.publish(fmt::format("slots/{}", fabric_->rank().value()), offer.take()));
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    DUNLIN_TRY(connect(Rank(static_cast<int>(rank))));
    make_streams(Rank(static_cast<int>(rank)));
  }
  return Status::ok();
}

Status Cycle::connect(Rank rank) {
  Peer& peer = peers_[rank.index()];
  DUNLIN_ASSIGN(peer.link, fabric_->link(rank));
  DUNLIN_ASSIGN(const Bytes offer,
                bootstrap_.lookup(fmt::format("slots/{}", rank.value()), options_.timeout));
  ByteReader reader(offer);
  peer.cells = NotifyId(reader.number<std::uint32_t>());
  DUNLIN_ASSIGN(peer.slots, fabric_->import_region(rank, reader.blob()));
  return Status::ok();
}

void Cycle::make_streams(Rank rank) {
  Peer& peer = peers_[rank.index()];
  const Rank self = fabric_->rank();
  const auto place = [](Rank of, LaneKind lane) {
    return (of.index() * kLaneKinds + index_of(lane)) * kStreamBytes;
  };
  for (const LaneKind kind : kBothLanes) {
    peer.senders.emplace_back(*fabric_, lane_of(*peer.link, kind), seed_of_stream(self, rank, kind),
                              outgoing_->slice(place(rank, kind), kStreamBytes).value(),
                              peer.slots->slice(place(self, kind), kStreamBytes).value(),
                              slot_cells(peer.cells, self, kind),
                              acknowledgment(cells_, rank, kind));
    peer.receivers.emplace_back(
        *fabric_, lane_of(*peer.link, other(kind)), seed_of_stream(rank, self, kind),
        incoming_->memory()->bytes().subspan(place(rank, kind), kStreamBytes),
        slot_cells(cells_, rank, kind), acknowledgment(peer.cells, self, kind));
  }
  for (std::size_t i = 0; i < kProbers; ++i) {
    peer.probers.emplace_back(
        *peer.link,
        landing_->slice((rank.index() * kProbers + i) * kLargestGet, kLargestGet).value(),
        seed_of(options_.seed, options_.number, self.value(), rank.value(), i, 1));
  }
}

}  // namespace dunlin::soak
