// The messages of a connection between endpoints (transports/endpoint/wire.h). The parts that are
// accepted hold exactly the messages that come of them, none of which is too large, and messages
// mean the same however they are cut. Requests for memory and their answers make the same bytes
// again.
#include <algorithm>

#include "tests/fuzz/harness.h"
#include "transports/endpoint/wire.h"

namespace dunlin::fuzz {
namespace {

using namespace transport::endpoint;

enum Mode : std::uint8_t { kParts, kRequest, kAnswer, kModes };

constexpr std::size_t kLargestPart = 64;
constexpr std::size_t kLargestMessage = 200;

using Messages = std::vector<WholeMessage>;

bool is_same(const Messages& one, const Messages& other) {
  return std::ranges::equal(one, other, [](const auto& a, const auto& b) {
    return a.kind == b.kind && equal(a.bytes, b.bytes);
  });
}

// Sends the messages in parts of at most `size` bytes, the last of which may be empty.
Messages sent_in_parts(const Messages& messages, std::size_t size) {
  Assembly assembly(size, kLargestMessage);
  Messages arrived;
  for (const WholeMessage& message : messages) {
    std::span<const std::byte> rest = message.bytes;
    for (bool has_more = true; has_more;) {
      const auto part = rest.first(std::min(rest.size(), size));
      rest = rest.subspan(part.size());
      has_more = part.size() == size;
      auto whole = assembly.add(PartTag{message.kind, has_more}.encode(), part);
      FUZZ_CHECK(whole.is_ok() && whole->has_value() == !has_more);
      if (*whole) arrived.push_back(std::move(**whole));
    }
  }
  return arrived;
}

// Each part is its tag, its size, and its bytes.
void check_parts(Input input) {
  Assembly assembly(kLargestPart, kLargestMessage);
  Messages messages;
  Bytes accepted;
  while (!input.rest().empty()) {
    const auto tag = input.take<std::uint64_t>();
    const Exact part(input.take_bytes(input.take<std::uint8_t>()));
    auto whole = assembly.add(tag, part.bytes());
    if (!whole) return;
    FUZZ_CHECK(PartTag::decode(tag)->encode() == tag);
    FUZZ_CHECK(part.bytes().size() <= kLargestPart);
    accepted.insert(accepted.end(), part.bytes().begin(), part.bytes().end());
    FUZZ_CHECK(accepted.size() <= kLargestMessage);
    if (!*whole) continue;
    FUZZ_CHECK((*whole)->kind <= MessageKind::kImported && equal((*whole)->bytes, accepted));
    accepted.clear();
    messages.push_back(std::move(**whole));
  }
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, kLargestPart})
    FUZZ_CHECK(is_same(sent_in_parts(messages, size), messages));
}

void check_request(std::span<const std::byte> bytes) {
  if (const auto request = ImportRequest::decode(bytes))
    FUZZ_CHECK(equal(request->encode(), bytes));
}

void check_answer(std::span<const std::byte> bytes) {
  const auto answer = ImportAnswer::decode(bytes);
  if (!answer) return;
  FUZZ_CHECK(equal(answer->encode(), bytes));
  FUZZ_CHECK(answer->code <= Code::kInternal && answer->code != Code::kBusy);
}

void append(Bytes& stream, PartTag tag, std::size_t size) {
  const Bytes header =
      ByteWriter().number(tag.encode()).number(static_cast<std::uint8_t>(size)).take();
  stream.insert(stream.end(), header.begin(), header.end());
  stream.insert(stream.end(), size, std::byte{5});
}

}  // namespace

std::vector<Seed> seeds() {
  Bytes parts;
  append(parts, {MessageKind::kGreeting}, 12);
  append(parts, {MessageKind::kProgram, true}, kLargestPart);
  append(parts, {MessageKind::kProgram, true}, kLargestPart);
  append(parts, {MessageKind::kProgram}, 3);
  append(parts, {MessageKind::kImport}, 8);
  const ImportAnswer granted{3, Code::kOk, "", Bytes(24, std::byte{7})};
  const ImportAnswer refused{4, Code::kNotFound, "no memory is registered", {}};
  return {headed_seed("parts", {kParts}, parts),
          headed_seed("request", {kRequest}, ImportRequest{3}.encode()),
          headed_seed("granted", {kAnswer}, granted.encode()),
          headed_seed("refused", {kAnswer}, refused.encode())};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  Input input(data, size);
  const auto mode = input.take<std::uint8_t>() % kModes;
  const Exact exact(input.rest());
  if (mode == kParts) check_parts(input);
  if (mode == kRequest) check_request(exact.bytes());
  if (mode == kAnswer) check_answer(exact.bytes());
  return 0;
}
