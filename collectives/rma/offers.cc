#include "collectives/rma/offers.h"

namespace dunlin::collective {
Bytes GpuWindowOffer::encode() const {
  ByteWriter writer;
  writer.number(tensor_bytes).number(static_cast<std::uint8_t>(is_readable)).text(gpu);
  writer.blob(memory).blob(words).number(static_cast<std::uint32_t>(in.size()));
  for (const Rank rank : in) writer.number(rank.value());
  return writer.take();
}

Result<GpuWindowOffer> GpuWindowOffer::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  GpuWindowOffer offer;
  offer.tensor_bytes = reader.number<std::uint64_t>();
  offer.is_readable = reader.number<std::uint8_t>() != 0;
  offer.gpu = reader.text();
  offer.memory = reader.bytes();
  offer.words = reader.bytes();
  for (auto left = reader.number<std::uint32_t>(); left > 0 && reader.ok(); --left)
    offer.in.emplace_back(reader.number<std::int32_t>());
  if (!reader.at_end())
    return Status(Code::kCorrupted, "what it has published is no description of a window");
  return offer;
}

Bytes MutexOffer::encode() const {
  ByteWriter writer;
  writer.number(members).number(owner_rank.value()).number(static_cast<std::uint32_t>(first_cell));
  writer.number(static_cast<std::uint8_t>(wants_manager)).text(transport);
  writer.number(static_cast<std::uint8_t>(scope.has_value()));
  writer.number(scope ? static_cast<std::uint8_t>(*scope) : std::uint8_t{0});
  writer.text(host).blob(words);
  return writer.take();
}

Result<MutexOffer> MutexOffer::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  MutexOffer offer;
  offer.members = reader.number<std::uint32_t>();
  offer.owner_rank = Rank(reader.number<std::int32_t>());
  offer.first_cell = transport::NotifyId(reader.number<std::uint32_t>());
  offer.wants_manager = reader.number<std::uint8_t>() != 0;
  offer.transport = reader.text();
  const bool is_able = reader.number<std::uint8_t>() != 0;
  const auto scope = reader.number<std::uint8_t>();
  const bool is_scope_known = scope <= static_cast<std::uint8_t>(transport::AtomicScope::kSystem);
  if (is_able) offer.scope = static_cast<transport::AtomicScope>(scope);
  offer.host = reader.text();
  offer.words = reader.bytes();
  if (!reader.at_end() || !is_scope_known)
    return Status(Code::kCorrupted, "malformed offer of a member of a mutex");
  return offer;
}

}  // namespace dunlin::collective
