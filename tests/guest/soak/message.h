// What the ranks of the soak send: every message follows from its stream's seed and its number, so
// that the receiver knows each byte, and each field of the notification, that has to arrive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transports/notification.h"

namespace dunlin::soak {

// Splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  // Less than `bound`, which isn't 0.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

// A seed that depends on all of them.
template <typename... Numbers>
std::uint64_t seed_of(Numbers... numbers) {
  std::uint64_t seed = 0;
  ((seed = Random(seed ^ static_cast<std::uint64_t>(numbers)).next()), ...);
  return seed;
}

// Byte i of a pattern depends on the seed and i only; `first` is a multiple of 8.
void fill(std::span<std::byte> bytes, std::uint64_t seed, std::size_t first = 0);
// The place of the first byte that is another.
std::optional<std::size_t> find_difference(std::span<const std::byte> bytes, std::uint64_t seed,
                                           std::size_t first = 0);

inline constexpr std::size_t kLargestMessage = std::size_t{256} << 10;
inline constexpr std::uint64_t kMostPuts = 4;

enum class Form : std::uint8_t {
  kPutNotify,
  kTagged,   // put_notify with a tag
  kPuts,     // puts, the last one with the notification
  kFlushed,  // puts, a flush that is waited for, and a notification that says nothing
  kInline,   // a notification with its bytes in it
};

struct Message {
  Form form;
  std::size_t size;  // of the bytes in the slot, or of those in the notification
  std::uint64_t seed;
  std::uint64_t puts;  // before the operation that notifies

  // The parts that it is put in, `puts` or one more.
  std::uint64_t parts() const { return puts + (is_last_part_announced() ? 1 : 0); }
  std::size_t offset(std::uint64_t part) const { return size / 8 * part / parts() * 8; }
  std::size_t end(std::uint64_t part) const {
    return part + 1 == parts() ? size : offset(part + 1);
  }
  bool is_last_part_announced() const { return form != Form::kFlushed && form != Form::kInline; }
};

Message message_of(std::uint64_t stream_seed, std::uint64_t number);

// What announces it; the inline data, if any, is in `room`.
transport::Notification notification_of(const Message& message, transport::NotifyId cell,
                                        std::uint64_t sequence,
                                        std::array<std::byte, transport::kInlineBytes>& room);

}  // namespace dunlin::soak
