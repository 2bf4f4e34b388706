#include "transports/channel/slot_offer.h"

#include <algorithm>
#include <limits>

namespace dunlin::transport {
namespace {

NotifyId read_cell(ByteReader& reader) {
  return NotifyId(reader.number<std::uint32_t>());
}

// Whether the slots of every edge are apart from one another, and have a place.
bool is_sound(const SlotOffer& offer) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  if (offer.depth == 0 || offer.stride < offer.slot_bytes) return false;
  if ((offer.stride == 0 || offer.in.empty()) != offer.region.empty()) return false;
  if (offer.stride > kMost / offer.depth) return false;
  const std::uint64_t whole = offer.stride * offer.depth;
  return std::ranges::all_of(
      offer.in, [whole](const SlotOffer::In& in) { return in.offset <= kMost - whole; });
}

}  // namespace

Bytes SlotOffer::encode() const {
  ByteWriter writer;
  writer.number(slot_bytes)
      .number(stride)
      .number(depth)
      .number(static_cast<std::uint8_t>(is_on_gpu))
      .text(terms)
      .blob(region);
  writer.number(static_cast<std::uint32_t>(in.size()));
  for (const In& edge : in) {
    writer.number(edge.from.value()).number(static_cast<std::uint32_t>(edge.first_cell));
    writer.number(edge.offset);
  }
  writer.number(static_cast<std::uint32_t>(out.size()));
  for (const Out& edge : out)
    writer.number(edge.to.value()).number(static_cast<std::uint32_t>(edge.ack_cell));
  return writer.take();
}

Result<SlotOffer> SlotOffer::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  SlotOffer offer;
  offer.slot_bytes = reader.number<std::uint64_t>();
  offer.stride = reader.number<std::uint64_t>();
  offer.depth = reader.number<std::uint32_t>();
  offer.is_on_gpu = reader.number<std::uint8_t>() != 0;
  offer.terms = reader.text();
  offer.region = reader.bytes();
  for (auto left = reader.number<std::uint32_t>(); left > 0 && reader.ok(); --left) {
    const Rank from(reader.number<std::int32_t>());
    const NotifyId cell = read_cell(reader);
    offer.in.push_back({from, cell, reader.number<std::uint64_t>()});
  }
  for (auto left = reader.number<std::uint32_t>(); left > 0 && reader.ok(); --left) {
    const Rank to(reader.number<std::int32_t>());
    offer.out.push_back({to, read_cell(reader)});
  }
  if (!reader.at_end() || !is_sound(offer))
    return Status(Code::kCorrupted, "malformed channel offer");
  return offer;
}

}  // namespace dunlin::transport
