// What arrives at the verbs transport (transports/verbs/connect/wire.h): addresses, connection
// messages, requests and answers of the connection manager, descriptors of regions, and the records
// and immediates of notifications. Flow control keeps its bounds whatever credits arrive.
#include "transports/verbs/connect/wire.h"

#include <algorithm>

#include "tests/fuzz/harness.h"
#include "transports/verbs/constants.h"
#include "transports/verbs/path/send_window.h"

namespace dunlin::fuzz {
namespace {

using namespace transport::verbs;

enum Mode : std::uint8_t {
  kAddress,
  kConnection,
  kRecord,
  kImmediate,
  kRegion,
  kRequest,
  kCredits,
  kModes
};

void check_address(std::span<const std::byte> bytes) {
  const auto address = Address::decode(bytes);
  if (!address) return;
  FUZZ_CHECK(!address->ports.empty() && address->ports.size() <= kMostPorts);
  const Bytes encoded = address->encode();
  const auto again = Address::decode(encoded);
  FUZZ_CHECK(again.is_ok() && equal(again->encode(), encoded) && encoded.size() == bytes.size());
}

void check_connection(std::span<const std::byte> bytes) {
  std::uint64_t target = 0;
  const auto message = ConnectionMessage::decode(bytes, target);
  if (!message) return;
  const Bytes encoded = message->encode(target, message->sender);
  std::uint64_t same = 0;
  const auto again = ConnectionMessage::decode(encoded, same);
  FUZZ_CHECK(again.is_ok() && same == target && encoded.size() == bytes.size());
  FUZZ_CHECK(equal(again->encode(same, again->sender), encoded));
  FUZZ_CHECK(again->kind <= MessageKind::kGone);
}

void check_record(std::span<const std::byte> bytes, std::uint32_t cell) {
  Record record{};
  if (!bytes.empty()) std::memcpy(&record, bytes.data(), std::min(bytes.size(), sizeof record));
  if (const auto found = record.notification(cell, bytes.size())) {
    FUZZ_CHECK(bytes.size() <= sizeof record);
    Record again{};
    again.set(*found, record.number);
    FUZZ_CHECK(equal(bytes, std::as_bytes(std::span(&again, 1)).first(again.wire_size())));
  }
  if (const auto landing = record.landing()) {
    Record again{};
    again.set(*landing);
    const auto same = again.landing();
    FUZZ_CHECK(same && same->region == landing->region && same->offset == landing->offset &&
               same->size == landing->size);
  }
}

void check_immediate(std::uint32_t immediate) {
  if (const auto form = ShortForm::decode(immediate)) FUZZ_CHECK(form->encode() == immediate);
}

void check_region(std::span<const std::byte> bytes) {
  const auto region = VerbsDescriptor::decode(bytes);
  if (!region) return;
  FUZZ_CHECK(region->id != 0 && !region->keys.empty() && region->keys.size() <= kMostPorts);
  FUZZ_CHECK(equal(region->encode(), bytes));
}

void check_request(std::span<const std::byte> bytes) {
  constexpr std::uint64_t kToken = 5;
  constexpr std::size_t kRanks = 4;
  const auto request = Request::decode(bytes, kToken, kRanks);
  if (!request) return;
  FUZZ_CHECK(request->source < kRanks && index_of(request->lane) < transport::kLaneKinds);
  FUZZ_CHECK(request->rail == 0 || request->lane == transport::LaneKind::kData);
  FUZZ_CHECK(equal(std::as_bytes(std::span(&*request, 1)), bytes.first(sizeof *request)));
}

// Notifications are sent as room permits, while these bytes are what the peer answers.
void check_credits(Input input) {
  SendWindow window(16);
  std::uint64_t sent = 0;
  std::uint64_t slots = 0;
  while (!input.rest().empty()) {
    if (input.take<std::uint8_t>() % 4 == 0) {
      const auto answer = Answer::decode(input.rest());
      if (!answer) return;
      (void)input.take_bytes(sizeof(Answer));
      if (!window.can_resume(*answer)) continue;
      window.resume(*answer);
      FUZZ_CHECK(answer->taken <= sent);
      sent = answer->taken;
      slots = answer->slots;
    } else {
      const Credit credit = Credit::decode(input.take<std::uint32_t>());
      window.take_credit(credit.taken);
    }
    if (slots == 0) continue;
    constexpr int kAtATime = 8;
    for (int i = 0; i < kAtATime && window.has_mailbox_room(); ++i)
      FUZZ_CHECK(window.next_notification() == ++sent);
    FUZZ_CHECK(window.on_the_way() <= slots);
  }
}

}  // namespace

std::vector<Seed> seeds() {
  Address address;
  address.token = 5;
  address.ports = {{"10.0.0.1", 4711, false}, {"", 0, true}};
  address.atomics = transport::AtomicScope::kSystem;
  const Request request{5, 1, kWireVersion, transport::LaneKind::kData, 0, 0};
  ConnectionMessage message{.kind = MessageKind::kRequest};
  message.initiator = 1;
  message.session = 3;
  message.place.queue_pair = 17;
  message.reads = 4;
  const auto raw = std::as_bytes(std::span(&request, 1));
  message.private_data.assign(raw.begin(), raw.end());
  Record record{};
  record.set(transport::Notification{transport::NotifyId(3), 4, 5, 6, as_bytes("inline")}, 7);
  ByteWriter notification;
  notification.number(std::uint32_t{3});
  Bytes record_bytes = notification.take();
  const auto content = std::as_bytes(std::span(&record, 1)).first(record.wire_size());
  record_bytes.insert(record_bytes.end(), content.begin(), content.end());
  ByteWriter immediate;
  immediate.number(ShortForm{3, 1, true}.encode());
  Answer answer{};
  answer.slots = 3;
  answer.version = kWireVersion;
  const auto raw_answer = std::as_bytes(std::span(&answer, 1));
  Bytes credits{std::byte{0}};  // an answer, and then a credit
  credits.insert(credits.end(), raw_answer.begin(), raw_answer.end());
  ByteWriter credit;
  credit.number(std::uint8_t{1}).number(Credit{2, false}.encode());
  const Bytes credit_bytes = credit.take();
  credits.insert(credits.end(), credit_bytes.begin(), credit_bytes.end());
  const VerbsDescriptor region{7, 0x7f0000001000, {17, 18}, true, false, 3};
  return {headed_seed("address", {kAddress}, address.encode()),
          headed_seed("region", {kRegion}, region.encode()),
          headed_seed("request", {kConnection}, message.encode(5, 6)),
          headed_seed("cm_request", {kRequest}, raw),
          headed_seed("credits", {kCredits}, credits),
          headed_seed("record", {kRecord}, record_bytes),
          headed_seed("short", {kImmediate}, immediate.take())};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  Input input(data, size);
  switch (input.take<std::uint8_t>() % kModes) {
    case kAddress:
      check_address(input.rest());
      break;
    case kConnection:
      check_connection(input.rest());
      break;
    case kRecord: {
      const auto cell = input.take<std::uint32_t>();
      check_record(input.rest(), cell);
      break;
    }
    case kRegion:
      check_region(input.rest());
      break;
    case kRequest:
      check_request(Exact(input.rest()).bytes());
      break;
    case kCredits:
      check_credits(input);
      break;
    default:
      check_immediate(input.take<std::uint32_t>());
  }
  return 0;
}
