// What a rank publishes of its transports (transports/published.h): addresses, requests to open a
// transport, and descriptors of regions. What is accepted makes the same bytes again.
#include "transports/published.h"

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace transport;

enum Mode : std::uint8_t { kAddresses, kRequest, kRegion, kModes };

void check_addresses(std::span<const std::byte> bytes) {
  const auto addresses = PublishedAddresses::decode(bytes);
  if (!addresses) return;
  check_stable(*addresses, bytes);
  for (const PublishedAddress& each : addresses->of) {
    const PublishedAddress* const found = addresses->find(each.transport);
    FUZZ_CHECK(found != nullptr && found->transport == each.transport);
  }
}

void check_region(std::span<const std::byte> bytes) {
  const auto region = RegionDescriptor::decode(bytes);
  if (!region) return;
  FUZZ_CHECK(equal(region->encode(), bytes));
  for (const auto& [transport, part] : region->parts)
    FUZZ_CHECK(region->find(transport) != nullptr);
}

void check_request(std::span<const std::byte> bytes) {
  if (const auto request = OpenRequest::decode(bytes)) FUZZ_CHECK(equal(request->encode(), bytes));
}

}  // namespace

std::vector<Seed> seeds() {
  const PublishedAddresses addresses{
      {{"shm", false, Bytes(12, std::byte{1})}, {"tcp", true, Bytes(6, std::byte{2})}}};
  const OpenRequest request{"tcp", Bytes(6, std::byte{2})};
  const RegionDescriptor region{
      4096, {{"shm", Bytes(9, std::byte{3})}, {"tcp", Bytes(8, std::byte{4})}}, "verbs: no device"};
  return {headed_seed("addresses", {kAddresses}, addresses.encode()),
          headed_seed("request", {kRequest}, request.encode()),
          headed_seed("region", {kRegion}, region.encode())};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  Input input(data, size);
  const auto mode = input.take<std::uint8_t>() % kModes;
  const Exact exact(input.rest());
  if (mode == kAddresses) check_addresses(exact.bytes());
  if (mode == kRequest) check_request(exact.bytes());
  if (mode == kRegion) check_region(exact.bytes());
  return 0;
}
