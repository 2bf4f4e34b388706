#include "transports/verbs/connect/wire.h"

#include <fmt/format.h>

#include <cstring>

#include "transports/verbs/constants.h"

namespace dunlin::transport::verbs {
namespace {

// Flags of a region's descriptor.
constexpr std::uint8_t kWantsLandings = 1;
constexpr std::uint8_t kIsShadow = 2;
constexpr std::uint8_t kIsOnGpu = 4;

bool have_same_family(const PortAddress& one, const PortAddress& other) {
  const auto is_ipv6 = [](const std::string& ip) { return ip.find(':') != std::string::npos; };
  return one.ip.empty() || other.ip.empty() || is_ipv6(one.ip) == is_ipv6(other.ip);
}

}  // namespace

bool is_by_manager(const PortAddress& one, const PortAddress& other) {
  if (one.ip.empty() || other.ip.empty() || !have_same_family(one, other)) return false;
  const bool is_within_subnet =
      one.is_infiniband && other.is_infiniband && one.subnet == other.subnet;
  return !is_within_subnet || one.prefers_manager || other.prefers_manager;
}

bool can_connect(const PortAddress& one, const PortAddress& other) {
  if (is_by_manager(one, other)) return true;
  if (one.is_infiniband != other.is_infiniband) return false;
  return one.is_infiniband || have_same_family(one, other);
}

Result<Request> Request::decode(std::span<const std::byte> bytes, std::uint64_t token,
                                std::size_t ranks) {
  Request request{};
  if (bytes.size() < sizeof request) return Status(Code::kCorrupted, "its request is too short");
  std::memcpy(&request, bytes.data(), sizeof request);
  if (request.version != kWireVersion) {
    return Status(Code::kUnavailable, fmt::format("it uses version {} of the wire format, not {}",
                                                  request.version, kWireVersion));
  }
  if (request.token != token) return Status(Code::kCorrupted, "its request has the wrong token");
  if (request.source >= ranks || index_of(request.lane) >= kLaneKinds)
    return Status(Code::kCorrupted, "its request names no rank and lane of this job");
  if (request.rail != 0 && request.lane != LaneKind::kData)
    return Status(Code::kCorrupted, "its request has the wrong lane for its rail");
  return request;
}

Result<Answer> Answer::decode(std::span<const std::byte> bytes) {
  Answer answer{};
  if (bytes.size() < sizeof answer)
    return Status(Code::kCorrupted, "the peer's answer is too short");
  std::memcpy(&answer, bytes.data(), sizeof answer);
  if (answer.version != kWireVersion || answer.slots == 0)
    return Status(Code::kCorrupted, "the peer's answer is malformed");
  return answer;
}

Bytes Address::encode() const {
  ByteWriter writer;
  writer.number(kWireVersion).number(token).number(static_cast<std::uint8_t>(ports.size()));
  for (const PortAddress& port : ports) {
    writer.text(port.ip).number(port.ip_port).number(std::uint8_t{port.is_infiniband});
    writer.number(port.subnet).number(std::uint8_t{port.prefers_manager});
  }
  writer.number<std::uint8_t>(atomics ? 1 + static_cast<std::uint8_t>(*atomics) : 0);
  return writer.take();
}

Result<Address> Address::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto version = reader.number<std::uint8_t>();
  if (reader.ok() && version != kWireVersion) {
    return Status(Code::kUnavailable,
                  fmt::format("the peer uses version {} of the verbs wire format, not {}", version,
                              kWireVersion));
  }
  Address address;
  address.token = reader.number<std::uint64_t>();
  const auto ports = reader.number<std::uint8_t>();
  if (reader.ok() && (ports == 0 || ports > kMostPorts))
    return Status(Code::kCorrupted, fmt::format("a verbs address with {} ports", ports));
  for (int i = 0; i < ports && reader.ok(); ++i) {
    PortAddress port;
    port.ip = reader.text();
    port.ip_port = reader.number<std::uint16_t>();
    port.is_infiniband = reader.number<std::uint8_t>() != 0;
    port.subnet = reader.number<std::uint64_t>();
    port.prefers_manager = reader.number<std::uint8_t>() != 0;
    address.ports.push_back(std::move(port));
  }
  const auto atomics = reader.number<std::uint8_t>();
  if (!reader.at_end() || atomics > 1 + static_cast<std::uint8_t>(AtomicScope::kSystem))
    return Status(Code::kCorrupted, "malformed verbs address");
  if (atomics != 0) address.atomics = AtomicScope(atomics - 1);
  return address;
}

Bytes ConnectionMessage::encode(std::uint64_t target, std::uint64_t from) const {
  ByteWriter writer;
  writer.number(kWireVersion).number(target).number(from).number(static_cast<std::uint8_t>(kind));
  writer.number(initiator).number(port).number(session).number(std::uint8_t{is_for_initiator});
  writer.number(std::uint8_t{is_final});
  writer.blob(std::as_bytes(std::span(place.gid)));
  writer.number(place.queue_pair).number(place.first_packet).number(place.lid).number(place.mtu);
  writer.number(reads).blob(private_data);
  return writer.take();
}

Result<ConnectionMessage> ConnectionMessage::decode(std::span<const std::byte> bytes,
                                                    std::uint64_t& target) {
  ByteReader reader(bytes);
  const auto version = reader.number<std::uint8_t>();
  if (reader.ok() && version != kWireVersion)
    return Status(Code::kUnavailable,
                  fmt::format("wire format {} instead of {}", version, kWireVersion));
  target = reader.number<std::uint64_t>();
  ConnectionMessage message{};
  message.sender = reader.number<std::uint64_t>();
  const auto kind = reader.number<std::uint8_t>();
  message.kind = MessageKind(kind);
  message.initiator = reader.number<std::uint32_t>();
  message.port = reader.number<std::uint8_t>();
  message.session = reader.number<std::uint64_t>();
  message.is_for_initiator = reader.number<std::uint8_t>() != 0;
  message.is_final = reader.number<std::uint8_t>() != 0;
  const auto gid = reader.blob();
  message.place.queue_pair = reader.number<std::uint32_t>();
  message.place.first_packet = reader.number<std::uint32_t>();
  message.place.lid = reader.number<std::uint16_t>();
  message.place.mtu = reader.number<std::uint8_t>();
  message.reads = reader.number<std::uint8_t>();
  message.private_data = reader.bytes();
  if (!reader.at_end() || gid.size() != sizeof message.place.gid ||
      kind > static_cast<std::uint8_t>(MessageKind::kGone))
    return Status(Code::kCorrupted, "malformed connection message");
  std::memcpy(message.place.gid, gid.data(), gid.size());
  return message;
}

void Record::set(const Landing& landing) {
  set(Notification{NotifyId{}, landing.region, landing.offset, 0,
                   std::as_bytes(std::span(&landing.size, 1))},
      0);
}

std::optional<Landing> Record::landing() const {
  Landing landing{sequence, tag, 0};
  if (inline_size != sizeof landing.size) return std::nullopt;
  std::memcpy(&landing.size, inline_data, sizeof landing.size);
  return landing;
}

std::optional<Notification> Record::notification(std::uint32_t cell, std::size_t size) const {
  if (size < offsetof(Record, inline_data) || inline_size > kInlineBytes || wire_size() != size ||
      number >= kCellNumbers)
    return std::nullopt;
  return Notification{NotifyId{cell}, sequence, tag, length, {inline_data, inline_size}};
}

Bytes VerbsDescriptor::encode() const {
  std::uint8_t flags = 0;
  if (wants_landings) flags |= kWantsLandings;
  if (is_shadow) flags |= kIsShadow;
  if (gpu) flags |= kIsOnGpu;
  ByteWriter writer;
  writer.number(id).number(address).number(keys.front()).number(flags);
  writer.number(static_cast<std::uint8_t>(keys.size() - 1));
  for (std::size_t port = 1; port < keys.size(); ++port) writer.number(keys[port]);
  if (gpu) writer.number(*gpu);
  return writer.take();
}

Result<VerbsDescriptor> VerbsDescriptor::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  VerbsDescriptor descriptor;
  descriptor.id = reader.number<std::uint64_t>();
  descriptor.address = reader.number<std::uint64_t>();
  descriptor.keys.push_back(reader.number<std::uint32_t>());
  const auto flags = reader.number<std::uint8_t>();
  descriptor.wants_landings = (flags & kWantsLandings) != 0;
  descriptor.is_shadow = (flags & kIsShadow) != 0;
  for (auto left = reader.number<std::uint8_t>(); left > 0; --left)
    descriptor.keys.push_back(reader.number<std::uint32_t>());
  if ((flags & kIsOnGpu) != 0) descriptor.gpu = reader.number<std::uint32_t>();
  const bool is_known = (flags & ~(kWantsLandings | kIsShadow | kIsOnGpu)) == 0;
  if (!reader.at_end() || descriptor.id == 0 || descriptor.keys.size() > kMostPorts || !is_known)
    return Status(Code::kCorrupted, "malformed region descriptor of verbs");
  return descriptor;
}

}  // namespace dunlin::transport::verbs
