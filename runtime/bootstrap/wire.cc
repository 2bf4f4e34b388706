#include "runtime/bootstrap/wire.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/bootstrap/constants.h"

namespace dunlin::bootstrap {

namespace {

Bytes encode_ranks(std::span<const Rank> ranks) {
  ByteWriter list;
  for (const Rank rank : ranks) list.number(static_cast<std::int32_t>(rank.value()));
  return list.take();
}

std::vector<Rank> decode_ranks(std::span<const std::byte> bytes) {
  std::vector<Rank> ranks;
  ranks.reserve(bytes.size() / sizeof(std::int32_t));
  ByteReader list(bytes);
  while (list.ok() && !list.at_end()) ranks.emplace_back(list.number<std::int32_t>());
  return ranks;
}

Bytes encode_body(const Message& message) {
  ByteWriter body;
  body.number(static_cast<std::uint8_t>(message.state))
      .number(std::int32_t{message.subject.value()})
      .number(message.request)
      .number(message.number)
      .text(message.text)
      .blob(message.shared_value ? *message.shared_value : message.value)
      .blob(encode_ranks(message.ranks));
  return body.take();
}

Status decode_body(std::span<const std::byte> bytes, Message& message) {
  ByteReader body(bytes);
  const auto state = body.number<std::uint8_t>();
  message.subject = Rank(body.number<std::int32_t>());
  message.request = body.number<std::uint64_t>();
  message.number = body.number<std::uint64_t>();
  message.text = body.text();
  message.value = body.bytes();
  const auto ranks = body.blob();
  message.ranks = decode_ranks(ranks);
  if (!body.at_end() || ranks.size() % sizeof(std::int32_t) != 0)
    return {Code::kCorrupted, "a message's body does not match its length"};
  if (state > static_cast<std::uint8_t>(PeerState::kDead)) {
    return {Code::kCorrupted, fmt::format("a message names the unknown peer state {}", state)};
  }
  message.state = static_cast<PeerState>(state);
  return Status::ok();
}

}  // namespace

Bytes encode(const Message& message) {
  ByteWriter frame;
  frame.number(kMagic)
      .number(kVersion)
      .number(static_cast<std::uint8_t>(message.type))
      .number(static_cast<std::uint8_t>(message.code))
      .blob(encode_body(message));
  return frame.take();
}

Result<std::optional<Message>> decode(std::span<const std::byte> input, std::size_t max_body_bytes,
                                      std::size_t& consumed) {
  consumed = 0;
  // The first bytes show whether this is a frame at all, without waiting for a whole header.
  for (std::size_t i = 0; i < std::min(input.size(), sizeof(kMagic)); ++i) {
    if (input[i] != static_cast<std::byte>(kMagic >> (8 * i))) {
      return Status(Code::kCorrupted, "this is not Dunlin's protocol");
    }
  }
  if (input.size() < kHeaderBytes) return std::optional<Message>();
  ByteReader header(input.subspan(sizeof(kMagic)));
  const auto version = header.number<std::uint16_t>();
  if (version != kVersion) {
    return Status(
        Code::kCorrupted,
        fmt::format("the peer has protocol version {}, this build version {}", version, kVersion));
  }
  Message message;
  message.type = static_cast<MessageType>(header.number<std::uint8_t>());
  const auto code = header.number<std::uint8_t>();
  if (code > static_cast<std::uint8_t>(Code::kInternal)) {
    return Status(Code::kCorrupted, fmt::format("a message has the unknown code {}", code));
  }
  message.code = static_cast<Code>(code);
  const auto length = header.number<std::uint32_t>();
  if (length > max_body_bytes) {
    return Status(Code::kCorrupted,
                  fmt::format("a message of {} bytes is larger than the {} bytes allowed here",
                              length, max_body_bytes));
  }
  if (input.size() - kHeaderBytes < length) return std::optional<Message>();
  DUNLIN_TRY(decode_body(input.subspan(kHeaderBytes, length), message));
  consumed = kHeaderBytes + length;
  return std::optional<Message>(std::move(message));
}

std::optional<std::vector<Bytes>> decode_values(std::span<const std::byte> answer,
                                                std::size_t most) {
  ByteReader reader(answer);
  std::vector<Bytes> values;
  while (reader.ok() && !reader.at_end() && values.size() < most) values.push_back(reader.bytes());
  if (!reader.at_end() || values.empty()) return std::nullopt;
  return values;
}

}  // namespace dunlin::bootstrap
