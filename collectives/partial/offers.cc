#include "collectives/partial/offers.h"

namespace dunlin::collective::partial {

Bytes ContactOffer::encode() const {
  return ByteWriter()
      .number(static_cast<std::uint32_t>(first_cell))
      .number(terms.scratch_bytes)
      .number(terms.segment_bytes)
      .text(terms.algorithm)
      .number(static_cast<std::uint8_t>(terms.is_on_gpu))
      .take();
}

Result<ContactOffer> ContactOffer::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  ContactOffer offer;
  offer.first_cell = transport::NotifyId(reader.number<std::uint32_t>());
  offer.terms.scratch_bytes = reader.number<std::uint64_t>();
  offer.terms.segment_bytes = reader.number<std::uint64_t>();
  offer.terms.algorithm = reader.text();
  offer.terms.is_on_gpu = reader.number<std::uint8_t>() != 0;
  if (!reader.at_end()) return Status(Code::kCorrupted, "malformed offer of a partial all-reduce");
  return offer;
}

}  // namespace dunlin::collective::partial
