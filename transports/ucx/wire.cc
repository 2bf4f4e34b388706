#include "transports/ucx/wire.h"

#include <fmt/format.h>

#include <cstring>

namespace dunlin::transport::ucx {

Bytes Address::encode() const {
  ByteWriter writer;
  writer.number(kWireVersion).number(token).number(cells);
  for (const Bytes& bytes : worker) writer.blob(bytes);
  return writer.take();
}

Result<Address> Address::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto version = reader.number<std::uint8_t>();
  if (reader.ok() && version != kWireVersion) {
    return Status(Code::kUnavailable,
                  fmt::format("the peer uses version {} of the ucx wire format, not {}", version,
                              kWireVersion));
  }
  Address address;
  address.token = reader.number<std::uint64_t>();
  address.cells = reader.number<std::uint64_t>();
  for (Bytes& worker : address.worker) {
    worker = reader.bytes();
    if (worker.empty()) return Status(Code::kCorrupted, "malformed ucx address");
  }
  if (!reader.at_end()) return Status(Code::kCorrupted, "malformed ucx address");
  return address;
}

void MessageHeader::set_notification(const Notification& notification) {
  cell = static_cast<std::uint32_t>(notification.id);
  sequence = notification.sequence;
  tag = notification.tag;
  length = notification.length;
  inline_size = static_cast<std::uint8_t>(notification.inline_data.size());
  if (inline_size != 0) std::memcpy(inline_data, notification.inline_data.data(), inline_size);
}

std::optional<MessageHeader> MessageHeader::parse(const void* bytes, std::size_t size) {
  MessageHeader header{};
  if (size < offsetof(MessageHeader, inline_data) || size > sizeof header) return std::nullopt;
  std::memcpy(&header, bytes, size);
  if (header.version != kWireVersion || header.inline_size > kInlineBytes ||
      header.wire_size() != size || header.kind < MessageKind::kPut ||
      header.kind > MessageKind::kRead) {
    return std::nullopt;
  }
  return header;
}

std::optional<ServiceHeader> ServiceHeader::parse(const void* bytes, std::size_t size) {
  ServiceHeader header{};
  if (size != sizeof header) return std::nullopt;
  std::memcpy(&header, bytes, size);
  if (header.version != kWireVersion || header.kind < ServiceKind::kHello ||
      header.kind > ServiceKind::kRead || index_of(header.lane) >= kLaneKinds ||
      header.code > Code::kInternal) {
    return std::nullopt;
  }
  return header;
}

Bytes UcxDescriptor::encode() const {
  ByteWriter writer;
  writer.number(id).number(address).number(static_cast<std::uint8_t>(is_kept)).blob(key);
  return writer.take();
}

Result<UcxDescriptor> UcxDescriptor::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  UcxDescriptor descriptor;
  descriptor.id = reader.number<std::uint64_t>();
  descriptor.address = reader.number<std::uint64_t>();
  descriptor.is_kept = reader.number<std::uint8_t>() != 0;
  descriptor.key = reader.bytes();
  if (!reader.at_end() || descriptor.id == 0)
    return Status(Code::kCorrupted, "malformed ucx region descriptor");
  return descriptor;
}

}  // namespace dunlin::transport::ucx
