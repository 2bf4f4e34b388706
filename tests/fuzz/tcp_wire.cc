// Messages, answers, addresses and regions of the tcp transport (transports/tcp/wire.h, address.h).
// What is taken off a frame lies within it, and is the whole of it.
#include "transports/tcp/wire.h"

#include <arpa/inet.h>

#include "tests/fuzz/harness.h"
#include "transports/tcp/address.h"

namespace dunlin::fuzz {
namespace {

using namespace transport::tcp;

enum Mode : std::uint8_t { kMessages, kAnswers, kAddress, kRegion, kModes };

void append(Bytes& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

template <typename Header>
void append_header(Bytes& bytes, const Header& header) {
  append(bytes, std::as_bytes(std::span(&header, 1)));
}

void check_messages(std::span<const std::byte> bytes) {
  std::span<const std::byte> rest = bytes;
  while (!rest.empty()) {
    const std::span<const std::byte> before = rest;
    const auto message = Message::take(rest);
    if (!message) return;
    Bytes again;
    append_header(again, message->header);
    append(again, message->inline_data);
    append(again, message->within);
    FUZZ_CHECK(message->header.wire_size() == again.size());
    FUZZ_CHECK(equal(again, before.first(before.size() - rest.size())));
    FUZZ_CHECK(message->notification().inline_data.size() <= transport::kInlineBytes);
  }
}

void check_answers(std::span<const std::byte> bytes) {
  std::span<const std::byte> rest = bytes;
  while (!rest.empty()) {
    const std::span<const std::byte> before = rest;
    const auto answer = Answer::take(rest);
    if (!answer) return;
    Bytes again;
    append_header(again, answer->header);
    append(again, answer->bytes);
    FUZZ_CHECK(equal(again, before.first(before.size() - rest.size())));
    FUZZ_CHECK(answer->header.code <= static_cast<std::uint8_t>(Code::kInternal));
  }
}

void check_address(std::span<const std::byte> bytes) {
  const auto address = Address::decode(bytes);
  if (!address) return;
  const auto again = Address::decode(address->encode());
  FUZZ_CHECK(again.is_ok() && equal(again->encode(), address->encode()));
  FUZZ_CHECK(again->endpoints == address->endpoints && again->host == address->host);
  for (const Endpoint& endpoint : address->endpoints) FUZZ_CHECK(!endpoint.to_string().empty());
}

void check_region(std::span<const std::byte> bytes) {
  const auto region = TcpDescriptor::decode(bytes);
  if (region) FUZZ_CHECK(region->id != 0 && equal(region->encode(), bytes));
}

Bytes with_mode(Mode mode) {
  return {static_cast<std::byte>(mode)};
}

Seed address_seed() {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(4711);
  v4.sin_addr.s_addr = htonl(0x0a000001);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(4712);
  v6.sin6_addr = in6addr_loopback;
  Address address;
  address.token = 0x1234;
  address.cells = 512;
  address.host = "a host";
  address.endpoints = {Endpoint(reinterpret_cast<const sockaddr*>(&v4)),
                       Endpoint(reinterpret_cast<const sockaddr*>(&v6))};
  Bytes bytes = with_mode(kAddress);
  append(bytes, address.encode());
  return {"address", bytes};
}

}  // namespace

std::vector<Seed> seeds() {
  const Bytes payload(24, std::byte{5});
  MessageHeader put{};
  put.order = 1;
  put.region = 7;
  put.size = payload.size();
  put.kind = MessageKind::kPut;
  put.flags = kWantsAck;
  MessageHeader notify{};
  notify.order = 2;
  notify.sequence = 3;
  notify.kind = MessageKind::kNotify;
  notify.inline_size = 8;
  MessageHeader large = put;
  large.order = 3;
  large.size = 1 << 20;
  large.flags |= kPayloadFollows;
  Bytes messages = with_mode(kMessages);
  append_header(messages, put);
  append(messages, payload);
  append_header(messages, notify);
  append(messages, std::span(payload).first(8));
  append_header(messages, large);
  AnswerHeader read{};
  read.order = 1;
  read.size = payload.size();
  read.kind = AnswerKind::kRead;
  AnswerHeader rejected{};
  rejected.order = 2;
  rejected.kind = AnswerKind::kRejected;
  rejected.code = static_cast<std::uint8_t>(Code::kOutOfRange);
  Bytes answers = with_mode(kAnswers);
  append_header(answers, read);
  append(answers, payload);
  append_header(answers, rejected);
  Bytes region = with_mode(kRegion);
  append(region, TcpDescriptor{7}.encode());
  return {{"messages", messages}, {"answers", answers}, {"region", region}, address_seed()};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  Input input(data, size);
  const auto mode = input.take<std::uint8_t>() % kModes;
  if (mode == kMessages) check_messages(input.rest());
  if (mode == kAnswers) check_answers(input.rest());
  if (mode == kAddress) check_address(input.rest());
  if (mode == kRegion) check_region(input.rest());
  return 0;
}
