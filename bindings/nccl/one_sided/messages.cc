#include "bindings/nccl/one_sided/messages.h"

namespace dunlin::nccl {
namespace {

enum class Kind : std::uint8_t { kAnnouncement, kAddition, kFarewell };

Bytes encode(Kind kind, std::uint64_t first, std::uint64_t second, std::uint64_t third) {
  ByteWriter writer;
  writer.number(static_cast<std::uint8_t>(kind)).number(first).number(second).number(third);
  return writer.take();
}

}  // namespace

Bytes encode(const GroupMessage& message) {
  if (const auto* const made = std::get_if<Announcement>(&message))
    return encode(Kind::kAnnouncement, made->window, made->memory, made->size);
  if (std::holds_alternative<Farewell>(message)) return encode(Kind::kFarewell, 0, 0, 0);
  const auto& addition = std::get<Addition>(message);
  return encode(Kind::kAddition, addition.window, addition.offset, addition.value);
}

std::optional<GroupMessage> decode_group_message(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto kind = reader.number<std::uint8_t>();
  const auto window = reader.number<std::uint64_t>();
  const auto second = reader.number<std::uint64_t>();
  const auto third = reader.number<std::uint64_t>();
  if (!reader.at_end()) return std::nullopt;
  switch (static_cast<Kind>(kind)) {
    case Kind::kAnnouncement:
      if (window == 0) break;
      return Announcement{window, second, third};
    case Kind::kAddition:
      if (window == 0 || second % sizeof third != 0) break;
      return Addition{window, second, third};
    case Kind::kFarewell:
      if (window != 0 || second != 0 || third != 0) break;
      return Farewell{};
  }
  return std::nullopt;
}

}  // namespace dunlin::nccl
