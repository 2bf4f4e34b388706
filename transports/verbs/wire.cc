#include "transports/verbs/wire.h"

#include <fmt/format.h>

#include <cstring>

#include "transports/verbs/constants.h"

namespace dunlin::transport::verbs {

Bytes Address::encode() const {
  ByteWriter writer;
  writer.number(kWireVersion).number(token).text(ip).number(port);
  return writer.take();
}

Result<Address> Address::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto version = reader.number<std::uint8_t>();
  if (reader.ok() && version != kWireVersion) {
    return Status(Code::kUnavailable,
                  fmt::format("the peer speaks version {} of the verbs wire format, not {}",
                              version, kWireVersion));
  }
  Address address;
  address.token = reader.number<std::uint64_t>();
  address.ip = reader.text();
  address.port = reader.number<std::uint16_t>();
  if (!reader.at_end()) return Status(Code::kCorrupted, "malformed verbs address");
  return address;
}

void Record::set(const Notification& notification) {
  sequence = notification.sequence;
  tag = notification.tag;
  length = notification.length;
  inline_size = static_cast<std::uint32_t>(notification.inline_data.size());
  if (inline_size != 0) copy_inline(inline_data, notification.inline_data.data(), inline_size);
}

std::optional<Notification> Record::notification(std::uint32_t cell, std::size_t size) const {
  if (size < offsetof(Record, inline_data) || inline_size > kInlineBytes || wire_size() != size) {
    return std::nullopt;
  }
  return Notification{NotifyId{cell}, sequence, tag, length, {inline_data, inline_size}};
}

}  // namespace dunlin::transport::verbs
