#include "bindings/nccl/messages.h"

namespace dunlin::nccl {

Bytes Message::encode() const {
  ByteWriter writer;
  writer.number(static_cast<std::uint8_t>(kind)).number(index).number(receive);
  if (kind != Kind::kReceive) return writer.number(number).take();
  for (const Buffer& buffer : buffers)
    writer.number(buffer.memory).number(buffer.offset).number(buffer.size).number(buffer.tag);
  return writer.take();
}

std::optional<Message> Message::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Message message;
  const auto kind = reader.number<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(Kind::kRefused)) return std::nullopt;
  message.kind = static_cast<Kind>(kind);
  message.index = reader.number<std::uint8_t>();
  message.receive = reader.number<std::uint16_t>();
  if (message.kind != Kind::kReceive) {
    message.number = reader.number<std::uint64_t>();
    if (!reader.at_end()) return std::nullopt;
    return message;
  }
  while (reader.ok() && !reader.at_end()) {
    if (message.buffers.size() == kMaxGroup) return std::nullopt;
    Buffer& buffer = message.buffers.emplace_back();
    buffer.memory = reader.number<std::uint64_t>();
    buffer.offset = reader.number<std::uint64_t>();
    buffer.size = reader.number<std::uint64_t>();
    buffer.tag = reader.number<std::int32_t>();
  }
  if (!reader.ok() || message.buffers.empty()) return std::nullopt;
  return message;
}

}  // namespace dunlin::nccl
