#include "transports/tcp/wire.h"

#include <cstring>

#include "runtime/status.h"

namespace dunlin::transport::tcp {

MessageHeader MessageHeader::join(const Origin& origin) {
  MessageHeader header{};
  header.kind = MessageKind::kJoin;
  header.region = origin.token;
  header.offset = origin.incarnation;
  header.sequence = origin.attempt;
  header.length = origin.depth;
  return header;
}

std::optional<Message> Message::take(std::span<const std::byte>& frame) {
  Message message;
  MessageHeader& header = message.header;
  if (frame.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, frame.data(), sizeof header);
  const bool is_known = header.kind >= MessageKind::kPut && header.kind <= MessageKind::kJoin;
  const bool has_notification = header.kind == MessageKind::kNotify;
  const bool has_bytes = header.size != 0;
  const bool is_join = header.kind == MessageKind::kJoin;
  const bool may_have_bytes = header.kind != MessageKind::kFlush && !is_join;
  if (!is_known || header.flags > (kWantsAck | kPayloadFollows | kIsRepeated) ||
      header.inline_size > (has_notification ? kInlineBytes : 0) ||
      (has_bytes && !may_have_bytes) ||
      (!has_bytes && (header.kind == MessageKind::kPut || header.kind == MessageKind::kRead)) ||
      (header.has(kPayloadFollows) && (!has_bytes || header.kind == MessageKind::kRead)) ||
      (header.has(kIsRepeated) && header.kind != MessageKind::kRead) ||
      (is_join && (header.order != 0 || header.flags != 0 || header.length == 0 ||
                   header.length > kMostPendingReads))) {
    return std::nullopt;
  }
  const std::size_t left = frame.size() - sizeof header;
  if (left < header.inline_size || left - header.inline_size < header.size_within())
    return std::nullopt;
  message.inline_data = frame.subspan(sizeof header, header.inline_size);
  message.within = frame.subspan(sizeof header + header.inline_size, header.size_within());
  frame = frame.subspan(header.wire_size());
  // The payload is what follows the frame, so the message must be the last in it.
  if (header.has(kPayloadFollows) && !frame.empty()) return std::nullopt;
  return message;
}

std::optional<Answer> Answer::take(std::span<const std::byte>& frame) {
  Answer answer;
  AnswerHeader& header = answer.header;
  if (frame.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, frame.data(), sizeof header);
  if (header.kind < AnswerKind::kAcknowledged || header.kind > AnswerKind::kBegin ||
      header.code > static_cast<std::uint8_t>(Code::kInternal)) {
    return std::nullopt;
  }
  frame = frame.subspan(sizeof header);
  if (header.kind != AnswerKind::kRead)
    return header.size == 0 ? std::optional(answer) : std::nullopt;
  if (header.size > frame.size()) return std::nullopt;
  answer.bytes = frame.first(header.size);
  frame = frame.subspan(header.size);
  return answer;
}

Bytes TcpDescriptor::encode() const {
  return ByteWriter().number(id).take();
}

Result<TcpDescriptor> TcpDescriptor::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const TcpDescriptor descriptor{reader.number<std::uint64_t>()};
  if (!reader.at_end() || descriptor.id == 0)
    return Status(Code::kCorrupted, "malformed tcp region descriptor");
  return descriptor;
}

}  // namespace dunlin::transport::tcp
