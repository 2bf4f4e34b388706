#include "transports/channel/slot_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "transports/channel/slot_offer.h"

namespace dunlin::transport {
namespace {

// A notice of a death takes milliseconds on one host and at most a heartbeat between hosts.
constexpr auto kNewsTime = std::chrono::milliseconds(500);

Result<SlotOffer> lookup_offer(bootstrap::NeighborValues& offers, const SlotOptions& ours,
                               Rank peer, Duration timeout) {
  auto bytes = offers.lookup(peer, timeout);
  if (!bytes)
    return std::move(bytes).status().with_context("waiting for a neighbor's slots").with_peer(peer);
  auto offer = SlotOffer::decode(*bytes);
  if (!offer) return std::move(offer).status().with_peer(peer);
  if (offer->terms != ours.terms) {
    return Status(Code::kInvalidArgument, fmt::format("'{}': the peer has '{}', this rank '{}'",
                                                      ours.name, offer->terms, ours.terms))
        .with_peer(peer);
  }
  if (offer->slot_bytes != ours.slot_bytes || offer->depth != ours.depth) {
    return Status(
               Code::kInvalidArgument,
               fmt::format("'{}': the peer has {} slots of {} bytes, this rank {} of {}", ours.name,
                           offer->depth, offer->slot_bytes, ours.depth, ours.slot_bytes))
        .with_peer(peer);
  }
  if (offer->is_on_gpu != (ours.gpu != nullptr)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}': the slots of the peer are in {} memory, those of this rank in "
                              "{} memory",
                              ours.name, offer->is_on_gpu ? "GPU" : "host",
                              offer->is_on_gpu ? "host" : "GPU"))
        .with_peer(peer);
  }
  return offer;
}

Status no_such_edge(const std::string& name, Rank from, Rank to, Rank peer) {
  return Status(Code::kInvalidArgument,
                fmt::format("'{}': the edge {} -> {} exists on one side only: the graphs differ",
                            name, from.value(), to.value()))
      .with_peer(peer);
}

Status check(const SlotOptions& options, int size) {
  if (options.slot_bytes > UINT32_MAX) {
    return {Code::kInvalidArgument, fmt::format("'{}': slots of {} bytes; messages have at most {}",
                                                options.name, options.slot_bytes, UINT32_MAX)};
  }
  if (options.depth == 0)
    return {Code::kInvalidArgument, fmt::format("'{}': a depth of 0 slots", options.name)};
  for (const auto* side : {&options.in, &options.out}) {
    for (const Rank rank : *side) {
      if (rank.value() < 0 || rank.value() >= size) {
        return {Code::kOutOfRange, fmt::format("'{}': there is no rank {} in a job of {}",
                                               options.name, rank.value(), size)};
      }
      if (std::count(side->begin(), side->end(), rank) > 1) {
        return {Code::kInvalidArgument,
                fmt::format("'{}': neighbor {} is listed twice", options.name, rank.value())};
      }
    }
  }
  return Status::ok();
}

}  // namespace

SlotExchange::SlotExchange(Fabric& fabric, SlotOptions options)
    : fabric_(fabric),
      options_(std::move(options)),
      offers_(fabric.bootstrap(), fmt::format("slots/{}/{}", options_.name, options_.epoch),
              options_.in, options_.out) {}

Result<std::unique_ptr<SlotExchange>> SlotExchange::prepare(Fabric& fabric, SlotOptions options) {
  DUNLIN_TRY(check(options, fabric.size()));
  std::unique_ptr<SlotExchange> exchange(new SlotExchange(fabric, std::move(options)));
  DUNLIN_TRY(exchange->allocate());
  DUNLIN_TRY(exchange->offers_.publish(exchange->describe()));
  return exchange;
}

// Spares connect_in() and connect_out() round trips.
Status SlotExchange::fetch() {
  const Duration timeout = fabric_.config().deadline;
  const std::vector<Rank> neighbors(offers_.neighbors().begin(), offers_.neighbors().end());
  Status status = offers_.fetch(timeout);
  if (status.is_ok()) status = fabric_.fetch_addresses(neighbors, timeout);
  return std::move(status).with_context("waiting for the neighbors' slots");
}

Status SlotExchange::connect() {
  DUNLIN_TRY(fetch());
  for (InSlots& edge : in_) DUNLIN_TRY(connect_in(edge));
  for (OutSlots& edge : out_) DUNLIN_TRY(connect_out(edge));
  return Status::ok();
}

Status SlotExchange::connect_present() {
  if (Status status = fetch(); status.code() == Code::kDeadlineExceeded) return status;
  for (InSlots& edge : in_) {
    Status status = connect_in(edge);
    if (status.is_ok()) continue;
    if (!is_gone(edge.from)) return status;
    edge.link = nullptr;
  }
  for (OutSlots& edge : out_) {
    Status status = connect_out(edge);
    if (status.is_ok()) continue;
    if (!is_gone(edge.to)) return status;
    edge.link = nullptr;
  }
  return Status::ok();
}

bool SlotExchange::is_gone(Rank peer) {
  const auto news = [&] {
    return fabric_.peers().is_present(peer) ? Status::busy() : Status::ok();
  };
  return fabric_
      .wait(
          news, [] { return std::vector<Awaited>(); }, kNewsTime)
      .is_ok();
}

Status SlotExchange::check_neighbors() {
  Status status = offers_.fetch(Duration::zero());
  return status.code() == Code::kDeadlineExceeded ? Status::busy() : status;
}

Status SlotExchange::allocate() {
  stride_ = whole_cache_lines(options_.slot_bytes);
  const std::size_t depth = options_.depth;
  if (!options_.in.empty() && stride_ > 0) {
    DUNLIN_ASSIGN(memory_, allocate_slots(stride_ * depth * options_.in.size()));
  }
  const std::size_t cells = options_.in.size() * depth + options_.out.size();
  DUNLIN_ASSIGN(cells_, fabric_.board().allocate(cells));
  cell_count_ = cells;
  auto next_cell = static_cast<std::uint32_t>(cells_);
  for (std::size_t i = 0; i < options_.in.size(); ++i) {
    InSlots& edge = in_.emplace_back();
    edge.from = options_.in[i];
    edge.first_cell = NotifyId(next_cell);
    next_cell += options_.depth;
    for (std::size_t slot = 0; slot < depth; ++slot) {
      edge.slots.push_back(memory_ ? memory_->data() + (i * depth + slot) * stride_ : nullptr);
    }
  }
  for (const Rank to : options_.out) {
    OutSlots& edge = out_.emplace_back();
    edge.to = to;
    edge.ack_cell = NotifyId(next_cell++);
  }
  return Status::ok();
}

Result<std::unique_ptr<LocalRegion>> SlotExchange::allocate_slots(std::size_t bytes) {
  return options_.gpu == nullptr
             ? fabric_.allocate(bytes)
             : fabric_.allocate_on_gpu(options_.gpu, options_.gpu_device, bytes);
}

Bytes SlotExchange::describe() const {
  SlotOffer offer;
  offer.slot_bytes = options_.slot_bytes;
  offer.stride = stride_;
  offer.depth = options_.depth;
  offer.is_on_gpu = options_.gpu != nullptr;
  offer.terms = options_.terms;
  if (memory_) offer.region = memory_->descriptor();
  for (std::size_t i = 0; i < in_.size(); ++i)
    offer.in.push_back({in_[i].from, in_[i].first_cell, i * options_.depth * stride_});
  for (const OutSlots& edge : out_) offer.out.push_back({edge.to, edge.ack_cell});
  return offer.encode();
}

Status SlotExchange::connect_in(InSlots& edge) {
  DUNLIN_ASSIGN(const SlotOffer offer,
                lookup_offer(offers_, options_, edge.from, fabric_.config().deadline));
  const auto counterpart =
      std::find_if(offer.out.begin(), offer.out.end(),
                   [&](const SlotOffer::Out& out) { return out.to == fabric_.rank(); });
  if (counterpart == offer.out.end())
    return no_such_edge(options_.name, edge.from, fabric_.rank(), edge.from);
  edge.peer_ack_cell = counterpart->ack_cell;
  DUNLIN_ASSIGN(edge.link, fabric_.link(edge.from));
  return Status::ok();
}

Status SlotExchange::connect_out(OutSlots& edge) {
  DUNLIN_ASSIGN(const SlotOffer offer,
                lookup_offer(offers_, options_, edge.to, fabric_.config().deadline));
  const auto counterpart =
      std::find_if(offer.in.begin(), offer.in.end(),
                   [&](const SlotOffer::In& in) { return in.from == fabric_.rank(); });
  if (counterpart == offer.in.end())
    return no_such_edge(options_.name, fabric_.rank(), edge.to, edge.to);
  edge.peer_first_cell = counterpart->first_cell;
  DUNLIN_ASSIGN(edge.link, fabric_.link(edge.to));
  if (offer.region.empty()) {
    edge.slots.resize(options_.depth);
    return Status::ok();
  }
  edge.slots.clear();  // connect() is called again when it, or what follows it, has failed
  DUNLIN_ASSIGN(edge.region, fabric_.import_region(edge.to, offer.region));
  for (std::uint32_t slot = 0; slot < options_.depth; ++slot) {
    DUNLIN_ASSIGN(
        const RemoteSlice at,
        edge.region->slice(counterpart->offset + slot * offer.stride, options_.slot_bytes));
    edge.slots.push_back(at);
  }
  return Status::ok();
}

SlotExchange::~SlotExchange() {
  if (cell_count_ > 0) fabric_.board().free(cells_, cell_count_);
}

}  // namespace dunlin::transport
