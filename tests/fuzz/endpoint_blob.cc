// The blob of an endpoint (transports/endpoint/blob.h), which programs carry from peer to peer.
#include "transports/endpoint/blob.h"

#include "tests/fuzz/harness.h"
#include "transports/endpoint/constants.h"

namespace dunlin::fuzz {

using transport::endpoint::Blob;

std::vector<Seed> seeds() {
  Blob blob;
  blob.port = 4711;
  blob.key.fill(std::byte{7});
  blob.host = 12345;
  const Bytes alone = blob.encode();
  for (std::uint8_t i = 1; i <= 2; ++i)
    blob.addresses.push_back({std::byte{10}, std::byte{0}, std::byte{0}, std::byte{i}});
  return {{"loopback", alone}, {"two_interfaces", blob.encode()}};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  const Exact exact(std::as_bytes(std::span(data, size)));
  const auto blob = Blob::decode(exact.bytes());
  if (!blob) return 0;
  FUZZ_CHECK(equal(blob->encode(), exact.bytes()));
  FUZZ_CHECK(blob->port != 0);
  FUZZ_CHECK(blob->addresses.size() <= dunlin::transport::endpoint::kMaxAddresses);
  FUZZ_CHECK(blob->hosts().size() <= blob->addresses.size() + 1);
  return 0;
}
