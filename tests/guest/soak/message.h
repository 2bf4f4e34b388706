// The messages of the soak. A message is determined by its stream's seed and its number, so the
// receiver knows each byte, and each field of the notification, that must arrive.
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
  // A number below `bound`, which must not be 0.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

// A seed that depends on all arguments.
template <typename... Numbers>
std::uint64_t seed_of(Numbers... numbers) {
  std::uint64_t seed = 0;
  ((seed = Random(seed ^ static_cast<std::uint64_t>(numbers)).next()), ...);
  return seed;
}

// Byte i of a pattern depends only on the seed and i. `first` must be a multiple of 8.
void fill(std::span<std::byte> bytes, std::uint64_t seed, std::size_t first = 0);
// The position of the first byte that differs.
std::optional<std::size_t> find_difference(std::span<const std::byte> bytes, std::uint64_t seed,
                                           std::size_t first = 0);

inline constexpr std::size_t kLargestMessage = std::size_t{256} << 10;
inline constexpr std::uint64_t kMostPuts = 4;

enum class Form : std::uint8_t {
  kPutNotify,
  kTagged,   // put_notify with a tag
  kPuts,     // puts, the last one with the notification
  kFlushed,  // puts, a flush that is waited for, and a notification without content
  kInline,   // a notification with inline bytes
};

struct Message {
  Form form;
  std::size_t size;  // bytes in the slot, or in the notification
  std::uint64_t seed;
  std::uint64_t puts;  // before the operation that notifies

  // The parts that it is put in: `puts`, or one more.
  std::uint64_t parts() const { return puts + (is_last_part_announced() ? 1 : 0); }
  std::size_t offset(std::uint64_t part) const { return size / 8 * part / parts() * 8; }
  std::size_t end(std::uint64_t part) const {
    return part + 1 == parts() ? size : offset(part + 1);
  }
  bool is_last_part_announced() const { return form != Form::kFlushed && form != Form::kInline; }
};

Message message_of(std::uint64_t stream_seed, std::uint64_t number);

// The notification that announces it. Inline data, if any, is in `room`.
transport::Notification notification_of(const Message& message, transport::NotifyId cell,
                                        std::uint64_t sequence,
                                        std::array<std::byte, transport::kInlineBytes>& room);

}  // namespace dunlin::soak
