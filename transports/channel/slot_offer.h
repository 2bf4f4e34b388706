// SlotOffer: what each rank of a slot exchange publishes for its neighbors (slot_exchange.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/bytes.h"
#include "runtime/rank.h"
#include "runtime/status.h"
#include "transports/notification.h"

namespace dunlin::transport {

struct SlotOffer {
  // An edge to the rank, whose slots lie in its region one after the other.
  struct In {
    Rank from;
    NotifyId first_cell{};
    std::uint64_t offset = 0;  // of this edge's slots in the region
  };
  struct Out {
    Rank to;
    NotifyId ack_cell{};
  };
  std::uint64_t slot_bytes = 0;
  std::uint64_t stride = 0;  // from slot to slot
  std::uint32_t depth = 0;   // slots per edge
  bool is_on_gpu = false;
  std::string terms;
  Bytes region;  // the descriptor; empty without slots
  std::vector<In> in;
  std::vector<Out> out;

  Bytes encode() const;
  // kCorrupted if the bytes are malformed, the slots of an edge overlap, or their place exceeds 64
  // bits. Whether they lie within the region is not known here.
  static Result<SlotOffer> decode(std::span<const std::byte> bytes);
};

}  // namespace dunlin::transport
