// What arrives at the ucx transport (transports/ucx/wire.h), whose ports authenticate nobody.
#include "transports/ucx/wire.h"

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace transport::ucx;

enum Mode : std::uint8_t { kMessage, kService, kAddress, kRegion, kModes };

void check_message(std::span<const std::byte> bytes) {
  const auto header = MessageHeader::parse(bytes.data(), bytes.size());
  if (!header) return;
  FUZZ_CHECK(header->wire_size() == bytes.size());
  FUZZ_CHECK(equal(bytes, std::as_bytes(std::span(&*header, 1)).first(bytes.size())));
  FUZZ_CHECK(header->notification().inline_data.size() <= transport::kInlineBytes);
}

void check_service(std::span<const std::byte> bytes) {
  const auto header = ServiceHeader::parse(bytes.data(), bytes.size());
  if (!header) return;
  FUZZ_CHECK(equal(bytes, std::as_bytes(std::span(&*header, 1))));
  FUZZ_CHECK(transport::index_of(header->lane) < transport::kLaneKinds);
  // It becomes the code of an error here.
  FUZZ_CHECK(header->code <= Code::kInternal);
}

void check_address(std::span<const std::byte> bytes) {
  const auto address = Address::decode(bytes);
  if (address) FUZZ_CHECK(equal(address->encode(), bytes));
}

void check_region(std::span<const std::byte> bytes) {
  const auto region = UcxDescriptor::decode(bytes);
  if (!region) return;
  FUZZ_CHECK(region->id != 0 && region->key.size() <= bytes.size());
  check_stable(*region, bytes);
}

template <typename Header>
Seed seed(std::string name, Mode mode, const Header& header, std::size_t size) {
  Bytes bytes{static_cast<std::byte>(mode)};
  const auto raw = std::as_bytes(std::span(&header, 1)).first(size);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
  return {std::move(name), bytes};
}

}  // namespace

std::vector<Seed> seeds() {
  MessageHeader message{};
  message.token = 5;
  message.order = 1;
  message.version = kWireVersion;
  message.kind = MessageKind::kNotify;
  message.set_notification({transport::NotifyId(3), 4, 5, 6, as_bytes("inline")});
  ServiceHeader service{};
  service.token = 5;
  service.version = kWireVersion;
  service.kind = ServiceKind::kRejected;
  service.code = Code::kOutOfRange;
  Address address;
  address.token = 5;
  address.cells = 512;
  for (Bytes& worker : address.worker) worker.assign(12, std::byte{3});
  const UcxDescriptor region{7, 0x7f0000001000, true, Bytes(30, std::byte{4})};
  return {seed("message", kMessage, message, message.wire_size()),
          seed("service", kService, service, sizeof service),
          headed_seed("address", {kAddress}, address.encode()),
          headed_seed("region", {kRegion}, region.encode())};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  Input input(data, size);
  const auto mode = input.take<std::uint8_t>() % kModes;
  if (mode == kMessage) check_message(input.rest());
  if (mode == kService) check_service(input.rest());
  if (mode == kAddress) check_address(input.rest());
  if (mode == kRegion) check_region(input.rest());
  return 0;
}
