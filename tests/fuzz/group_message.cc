// What workers and the master of groups send to one another (collectives/groups/message.h). What is
// accepted is what the encoder makes of it, and names ranks of the job only.
#include "collectives/groups/message.h"

#include <algorithm>

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace collective::groups;

constexpr int kMostRanks = 64;

void check(Input input) {
  const int ranks = 1 + static_cast<int>(input.below(kMostRanks));
  MailboxMessage encoded;
  encoded.tag = input.take<std::uint64_t>();
  encoded.body.assign(input.rest().begin(), input.rest().end());
  const auto message = decode(encoded, ranks);
  if (!message) return;
  for (const Rank rank : message->ranks) FUZZ_CHECK(rank >= Rank(0) && rank < Rank(ranks));
  FUZZ_CHECK(std::ranges::is_sorted(message->ranks));
  const auto again = decode(encode(*message), ranks);
  FUZZ_CHECK(again.is_ok());
  // A longer reason than this side would send is cut off.
  FUZZ_CHECK(message->text.starts_with(again->text));
  GroupMessage same = *message;
  same.text = again->text;
  FUZZ_CHECK(same == *again);
}

Seed seed(std::string name, const GroupMessage& message) {
  ByteWriter writer;
  const MailboxMessage encoded = encode(message);
  writer.number(std::uint32_t{7}).number(encoded.tag);
  Bytes bytes = writer.take();
  bytes.insert(bytes.end(), encoded.body.begin(), encoded.body.end());
  return {std::move(name), bytes};
}

}  // namespace

std::vector<Seed> seeds() {
  return {
      seed("ask", {.kind = MessageKind::kAsk, .number = 3, .iteration = 17}),
      seed("join", {.kind = MessageKind::kJoin,
                    .number = 4,
                    .flag = true,
                    .ranks = {Rank(0), Rank(2), Rank(5)}}),
      seed("resume",
           {.kind = MessageKind::kResume, .number = 4, .flag = true, .ranks = {Rank(1), Rank(7)}}),
      seed("broken", {.kind = MessageKind::kBroken, .number = 4}),
      seed(
          "refused",
          {.kind = MessageKind::kRefused, .code = Code::kInvalidArgument, .text = "no such group"}),
  };
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dunlin::fuzz::check(dunlin::fuzz::Input(data, size));
  return 0;
}
