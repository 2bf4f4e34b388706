#include "tests/guest/soak/message.h"

#include <algorithm>
#include <cstring>

namespace dunlin::soak {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

// Calls visit(offset, word, size) for the words of the pattern until it returns false. The last
// word may be incomplete.
template <typename Visit>
void for_each_word(std::size_t size, std::uint64_t seed, std::size_t first, Visit&& visit) {
  for (std::size_t offset = 0; offset < size; offset += kWord) {
    const std::uint64_t word = Random(seed + (first + offset) / kWord).next();
    if (!visit(offset, word, std::min(kWord, size - offset))) return;
  }
}

// A size of 0, of less than a cache line, or of anything up to the largest. Most messages are
// small, and most bytes are in large messages.
std::size_t random_size(Random& random) {
  constexpr std::size_t kBounds[] = {
      1,    1,    64,   64,   64,     64,     256,    256,
      4096, 4096, 4096, 4096, 65'536, 65'536, 65'536, kLargestMessage + 1};
  return random.below(kBounds[random.below(std::size(kBounds))]);
}

}  // namespace

std::uint64_t Random::next() {
  std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 31);
}

void fill(std::span<std::byte> bytes, std::uint64_t seed, std::size_t first) {
  for_each_word(bytes.size(), seed, first,
                [&](std::size_t offset, std::uint64_t word, std::size_t size) {
                  std::memcpy(bytes.data() + offset, &word, size);
                  return true;
                });
}

std::optional<std::size_t> find_difference(std::span<const std::byte> bytes, std::uint64_t seed,
                                           std::size_t first) {
  std::optional<std::size_t> found;
  for_each_word(
      bytes.size(), seed, first, [&](std::size_t offset, std::uint64_t word, std::size_t size) {
        if (std::memcmp(bytes.data() + offset, &word, size) == 0) return true;
        const auto* const expected = reinterpret_cast<const std::byte*>(&word);
        found =
            std::mismatch(expected, expected + size, bytes.data() + offset).second - bytes.data();
        return false;
      });
  return found;
}

Message message_of(std::uint64_t stream_seed, std::uint64_t number) {
  Random random(seed_of(stream_seed, number));
  Message message{};
  message.seed = random.next();
  message.form = static_cast<Form>(random.below(static_cast<std::uint64_t>(Form::kInline) + 1));
  message.size = message.form == Form::kInline ? random.below(transport::kInlineBytes + 1)
                                               : random_size(random);
  if (message.form == Form::kPuts || message.form == Form::kFlushed)
    message.puts = 1 + random.below(kMostPuts);
  return message;
}

transport::Notification notification_of(const Message& message, transport::NotifyId cell,
                                        std::uint64_t sequence,
                                        std::array<std::byte, transport::kInlineBytes>& room) {
  transport::Notification made;
  made.id = cell;
  made.sequence = sequence;
  if (message.form == Form::kTagged) made.tag = message.seed;
  if (message.form == Form::kInline) {
    const auto used = std::span(room).first(message.size);
    fill(used, message.seed);
    made.inline_data = used;
  }
  if (message.is_last_part_announced())
    made.length = static_cast<std::uint32_t>(message.size - message.offset(message.puts));
  return made;
}

}  // namespace dunlin::soak
