// Decoders refuse values that no peer of this version sends, also where their form is right. A rank
// that used such a value would access wrong memory or misread later messages.
#include <gtest/gtest.h>

#include "transports/channel/slot_offer.h"
#include "transports/endpoint/wire.h"
#include "transports/shm/descriptor.h"
#include "transports/shm/handover.h"

namespace dunlin::testing {
namespace {

using transport::NotifyId;
using transport::SlotOffer;
using transport::endpoint::Assembly;
using transport::endpoint::ImportAnswer;
using transport::endpoint::MessageKind;
using transport::endpoint::PartTag;
using transport::shm::FileMemory;
using transport::shm::ShmDescriptor;

SlotOffer some_slots() {
  SlotOffer offer;
  offer.slot_bytes = 1000;
  offer.stride = 1024;
  offer.depth = 2;
  offer.region = Bytes(24, std::byte{7});
  offer.in = {{Rank(1), NotifyId(8), 2048}};
  return offer;
}

Code code_of(const SlotOffer& offer) {
  return SlotOffer::decode(offer.encode()).status().code();
}

TEST(SlotOfferDecoding, RefusesSlotsThatOverlap) {
  EXPECT_EQ(code_of(some_slots()), Code::kOk);
  SlotOffer offer = some_slots();
  offer.stride = 64;
  EXPECT_EQ(code_of(offer), Code::kCorrupted);
}

TEST(SlotOfferDecoding, RefusesPlacesBeyondAllMemory) {
  SlotOffer offer = some_slots();
  offer.in[0].offset = UINT64_MAX - 2047;
  EXPECT_EQ(code_of(offer), Code::kCorrupted);
  offer = some_slots();
  offer.stride = UINT64_MAX / 2 + 1;
  EXPECT_EQ(code_of(offer), Code::kCorrupted);
}

// A sender would take a slot without a place for one of a message that needs none.
TEST(SlotOfferDecoding, RefusesSlotsWithoutMemory) {
  SlotOffer offer = some_slots();
  offer.region.clear();
  EXPECT_EQ(code_of(offer), Code::kCorrupted);
  offer = some_slots();
  offer.depth = 0;
  EXPECT_EQ(code_of(offer), Code::kCorrupted);
}

// Every place without a region has the generation 0, so it would pass for one that is registered.
TEST(ShmDescriptorDecoding, RefusesGenerationsOfNoRegion) {
  ShmDescriptor descriptor{3, 1, FileMemory{7, 123456, 0}};
  EXPECT_TRUE(ShmDescriptor::decode(descriptor.encode(), 4096).is_ok());
  for (const std::uint64_t generation : {std::uint64_t{0}, transport::shm::kMemoryOffer}) {
    descriptor.generation = generation;
    EXPECT_EQ(ShmDescriptor::decode(descriptor.encode(), 4096).status().code(), Code::kCorrupted);
  }
}

TEST(EndpointDecoding, RefusesAnswersWithAnUnknownCode) {
  const ImportAnswer answer{3, Code::kNotFound, "no such memory", {}};
  Bytes bytes = answer.encode();
  ASSERT_TRUE(ImportAnswer::decode(bytes).is_ok());
  for (const auto code :
       {static_cast<std::uint8_t>(Code::kBusy), std::uint8_t{200}, std::uint8_t{255}}) {
    bytes[sizeof answer.id] = std::byte{code};
    EXPECT_EQ(ImportAnswer::decode(bytes).status().code(), Code::kCorrupted) << int{code};
  }
}

TEST(EndpointDecoding, RefusesAMessageThatChangesItsKind) {
  const Bytes part(8, std::byte{5});
  for (const auto kind : {MessageKind::kProgram, MessageKind::kImported}) {
    Assembly assembly(64, 200);
    ASSERT_TRUE(assembly.add(PartTag{MessageKind::kProgram, true}.encode(), part).is_ok());
    const auto whole = assembly.add(PartTag{kind}.encode(), part);
    EXPECT_EQ(whole.is_ok(), kind == MessageKind::kProgram);
  }
}

TEST(EndpointDecoding, RefusesUnknownTagsAndPartsThatAreTooLarge) {
  const Bytes part(65, std::byte{5});
  EXPECT_FALSE(Assembly(64, 200).add(PartTag{}.encode(), part).is_ok());
  EXPECT_FALSE(Assembly(100, 64).add(PartTag{}.encode(), part).is_ok());
  EXPECT_FALSE(Assembly(100, 200).add(PartTag{}.encode() | 1ULL << 40, part).is_ok());
  EXPECT_TRUE(Assembly(100, 200).add(PartTag{}.encode(), part).is_ok());
}

}  // namespace
}  // namespace dunlin::testing
