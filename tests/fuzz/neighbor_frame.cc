// Messages between neighbors (collectives/neighbor/frame.h). A message that passes the check falls
// into parts that lie within it, from which the sender's composition makes it again.
#include "collectives/neighbor/frame.h"

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace collective::neighbor;

Bytes composed(Frame& frame) {
  Bytes bytes;
  for (const auto piece : frame.pieces()) bytes.insert(bytes.end(), piece.begin(), piece.end());
  return bytes;
}

void check(std::span<const std::byte> message) {
  if (!check_frame(message).is_ok()) return;
  Frame frame;
  for (std::span<const std::byte> rest = message; !rest.empty();) {
    const std::size_t before = rest.size();
    const Part part = take_part(rest);
    FUZZ_CHECK(rest.size() < before);
    if (!part.bytes.empty()) {
      FUZZ_CHECK(part.bytes.data() >= message.data() &&
                 part.bytes.data() + part.bytes.size() <= message.data() + message.size());
    }
    FUZZ_CHECK(part.header.kind == Kind::kEager || part.bytes.empty());
    frame.add(part);
  }
  // The fill is of any value, and missing behind the last part.
  const Bytes again = composed(frame);
  FUZZ_CHECK(again.size() <= message.size() && message.size() - again.size() < 8);
  FUZZ_CHECK(check_frame(again).is_ok());
}

}  // namespace

std::vector<Seed> seeds() {
  const Bytes bytes(13, std::byte{4});
  Header eager{.key = 1, .sequence = 1, .bytes = bytes.size(), .kind = Kind::kEager};
  Header announce{.key = 2, .sequence = 1, .bytes = 1 << 20, .kind = Kind::kAnnounce};
  Frame one;
  one.add({eager, bytes});
  Frame several;
  several.add({eager, bytes});
  several.add({announce, {}});
  eager.sequence = 2;
  several.add({eager, bytes});
  return {{"one", composed(one)}, {"several", composed(several)}};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dunlin::fuzz::check(std::as_bytes(std::span(data, size)));
  return 0;
}
