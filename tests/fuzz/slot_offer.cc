// What ranks publish of the slots of their edges (transports/channel/slot_offer.h). What is
// accepted has slots that do not overlap, at places of at most 64 bits.
#include "transports/channel/slot_offer.h"

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using transport::NotifyId;
using transport::SlotOffer;

void check(std::span<const std::byte> bytes) {
  const auto offer = SlotOffer::decode(bytes);
  if (!offer) return;
  check_stable(*offer, bytes);
  FUZZ_CHECK(offer->depth > 0 && offer->stride >= offer->slot_bytes);
  FUZZ_CHECK(!offer->region.empty() || offer->in.empty() || offer->stride == 0);
  for (const SlotOffer::In& in : offer->in) {
    std::uint64_t end = 0;
    FUZZ_CHECK(!__builtin_mul_overflow(offer->stride, offer->depth, &end));
    FUZZ_CHECK(!__builtin_add_overflow(end, in.offset, &end));
  }
}

}  // namespace

std::vector<Seed> seeds() {
  SlotOffer offer{.slot_bytes = 1000,
                  .stride = 1024,
                  .depth = 2,
                  .is_on_gpu = false,
                  .terms = "float32 x 250, average",
                  .region = Bytes(24, std::byte{7}),
                  .in = {{Rank(1), NotifyId(8), 0}, {Rank(3), NotifyId(10), 2048}},
                  .out = {{Rank(1), NotifyId(12)}}};
  const Bytes slots = offer.encode();
  offer = {.slot_bytes = 0,
           .stride = 0,
           .depth = 4,
           .is_on_gpu = true,
           .terms = {},
           .region = {},
           .in = {{Rank(1), NotifyId(8), 0}},
           .out = {}};
  return {{"slots", slots}, {"no_slots", offer.encode()}};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const dunlin::fuzz::Exact exact(std::as_bytes(std::span(data, size)));
  dunlin::fuzz::check(exact.bytes());
  return 0;
}
