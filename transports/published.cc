#include "transports/published.h"

#include <algorithm>

namespace dunlin::transport {
const PublishedAddress* PublishedAddresses::find(std::string_view transport) const {
  const auto found = std::ranges::find(of, transport, &PublishedAddress::transport);
  return found == of.end() ? nullptr : &*found;
}

Bytes PublishedAddresses::encode() const {
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(of.size()));
  for (const PublishedAddress& each : of) {
    writer.text(each.transport).number(static_cast<std::uint8_t>(each.is_on_demand));
    writer.blob(each.address);
  }
  return writer.take();
}

Result<PublishedAddresses> PublishedAddresses::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  PublishedAddresses addresses;
  for (auto left = reader.number<std::uint32_t>(); left > 0 && reader.ok(); --left) {
    PublishedAddress& each = addresses.of.emplace_back();
    each.transport = reader.text();
    each.is_on_demand = reader.number<std::uint8_t>() != 0;
    each.address = reader.bytes();
  }
  if (!reader.at_end()) return Status(Code::kCorrupted, "malformed fabric address");
  return addresses;
}

Bytes OpenRequest::encode() const {
  return ByteWriter().text(transport).blob(outline).take();
}

Result<OpenRequest> OpenRequest::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  OpenRequest request;
  request.transport = reader.text();
  request.outline = reader.bytes();
  if (!reader.at_end()) return Status(Code::kCorrupted, "malformed request to open a transport");
  return request;
}

const Bytes* RegionDescriptor::find(std::string_view transport) const {
  const auto found = std::ranges::find(parts, transport, &std::pair<std::string, Bytes>::first);
  return found == parts.end() ? nullptr : &found->second;
}

Bytes RegionDescriptor::encode() const {
  ByteWriter writer;
  writer.number(size).number(static_cast<std::uint32_t>(parts.size()));
  for (const auto& [transport, part] : parts) writer.text(transport).blob(part);
  return writer.text(refusals).take();
}

Result<RegionDescriptor> RegionDescriptor::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  RegionDescriptor descriptor;
  descriptor.size = reader.number<std::uint64_t>();
  for (auto left = reader.number<std::uint32_t>(); left > 0 && reader.ok(); --left) {
    auto& [transport, part] = descriptor.parts.emplace_back();
    transport = reader.text();
    part = reader.bytes();
  }
  descriptor.refusals = reader.text();
  if (!reader.at_end()) return Status(Code::kCorrupted, "malformed region descriptor");
  return descriptor;
}

}  // namespace dunlin::transport
