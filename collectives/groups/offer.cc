#include "collectives/groups/offer.h"

#include <cstdint>

namespace dunlin::collective::groups {

Bytes MailboxOffer::encode() const {
  return ByteWriter().number(static_cast<std::uint32_t>(first_cell)).blob(terms).take();
}

Result<MailboxOffer> MailboxOffer::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  MailboxOffer offer;
  offer.first_cell = transport::NotifyId(reader.number<std::uint32_t>());
  offer.terms = reader.bytes();
  if (!reader.at_end()) return Status(Code::kCorrupted, "malformed offer of a mailbox");
  return offer;
}

}  // namespace dunlin::collective::groups
