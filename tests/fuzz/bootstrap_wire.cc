// Frames of the bootstrap (runtime/bootstrap/wire.h), which any process that connects can send. A
// frame that is accepted is the one that the encoder makes of the message, and needs all of its
// bytes. The same holds for the answer to a lookup of several ranks, which consists of
// values.
#include "runtime/bootstrap/wire.h"

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace bootstrap;

constexpr std::size_t kMostBytes = 1 << 16;

void check_values(std::span<const std::byte> answer) {
  constexpr std::size_t kMost = 4;
  const auto values = decode_values(answer, kMost);
  if (!values) return;
  FUZZ_CHECK(!values->empty() && values->size() <= kMost);
  ByteWriter writer;
  for (const Bytes& value : *values) writer.blob(value);
  FUZZ_CHECK(equal(writer.take(), answer));
}

void check(std::span<const std::byte> input) {
  for (;;) {
    std::size_t consumed = 0;
    const auto decoded = decode(input, kMostBytes, consumed);
    if (!decoded || !decoded->has_value()) {
      FUZZ_CHECK(consumed == 0);
      return;
    }
    FUZZ_CHECK(consumed >= kHeaderBytes && consumed <= input.size());
    FUZZ_CHECK(consumed <= kHeaderBytes + kMostBytes);
    FUZZ_CHECK(equal(encode(**decoded), input.first(consumed)));
    check_values((*decoded)->value);
    std::size_t less = 0;
    const auto cut = decode(input.first(consumed - 1), kMostBytes, less);
    FUZZ_CHECK(cut.is_ok() && !cut->has_value());
    input = input.subspan(consumed);
  }
}

}  // namespace

std::vector<Seed> seeds() {
  std::vector<Seed> made;
  const Bytes value(20, std::byte{7});
  made.push_back({"hello", encode({.type = MessageType::kHello,
                                   .subject = Rank(3),
                                   .number = 4,
                                   .text = "job",
                                   .value = Bytes(32, std::byte{1})})});
  made.push_back({"lookup", encode({.type = MessageType::kLookup,
                                    .request = 9,
                                    .number = 1'000'000'000,
                                    .text = "fabric/3"})});
  made.push_back(
      {"release", encode({.type = MessageType::kRelease, .number = 4, .text = "barrier/b#3"})});
  made.push_back({"reform", encode({.type = MessageType::kReply,
                                    .request = 9,
                                    .number = 2,
                                    .ranks = {Rank(0), Rank(1), Rank(3)}})});
  made.push_back({"notice", encode({.type = MessageType::kNotice,
                                    .code = Code::kPeerDead,
                                    .state = PeerState::kDead,
                                    .subject = Rank(1),
                                    .text = "its connection ended"})});
  ByteWriter values;
  values.blob(value).blob({}).blob(value);
  made.push_back(
      {"values", encode({.type = MessageType::kReply, .request = 9, .value = values.take()})});
  Bytes two = encode({.type = MessageType::kMail, .subject = Rank(2), .value = value});
  const Bytes second = encode({.type = MessageType::kHeartbeat});
  two.insert(two.end(), second.begin(), second.end());
  made.push_back({"two_frames", two});
  return made;
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dunlin::fuzz::check(std::as_bytes(std::span(data, size)));
  return 0;
}
