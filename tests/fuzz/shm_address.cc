// Addresses of the shm transport (transports/shm/segment.h).
#include "tests/fuzz/harness.h"
#include "transports/shm/segment.h"

namespace dunlin::fuzz {

std::vector<Seed> seeds() {
  transport::shm::SegmentAddress address;
  address.host_id = "a host";
  address.pid_namespace = 4026531836;
  address.pid = 4711;
  address.segment_fd = 7;
  address.doorbell_fd = 8;
  address.board_fd = 9;
  address.board_bytes = 65536;
  address.token = {1, 2};
  address.handover = {"dunlin-shm-0123", true, 4026531840, "no pidfd"};
  return {{"address", address.encode()}};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto address = dunlin::transport::shm::SegmentAddress::decode(bytes);
  if (address) FUZZ_CHECK(dunlin::fuzz::equal(address->encode(), bytes));
  return 0;
}
