// What a rank of a barrier publishes for those that it hears from.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/bytes.h"
#include "runtime/status.h"
#include "transports/notification.h"

namespace dunlin::collective {

struct BarrierOffer {
  std::uint32_t members = 0;
  transport::NotifyId first_cell{};  // of the rounds' cells

  Bytes encode() const {
    return ByteWriter().number(members).number(static_cast<std::uint32_t>(first_cell)).take();
  }
  static Result<BarrierOffer> decode(std::span<const std::byte> bytes) {
    ByteReader reader(bytes);
    BarrierOffer offer;
    offer.members = reader.number<std::uint32_t>();
    offer.first_cell = transport::NotifyId(reader.number<std::uint32_t>());
    if (!reader.at_end()) return Status(Code::kCorrupted, "the peer's barrier offer is malformed");
    return offer;
  }
};

}  // namespace dunlin::collective
