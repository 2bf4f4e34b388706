#include "transports/tcp/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "runtime/bootstrap/net.h"
#include "transports/tcp/constants.h"

namespace dunlin::transport::tcp {
namespace {

// More addresses than any host has; a limit for what is decoded.
constexpr std::size_t kMostEndpoints = 256;

bool contains(const std::vector<Endpoint>& endpoints, const Endpoint& wanted) {
  return std::any_of(endpoints.begin(), endpoints.end(),
                     [&](const Endpoint& it) { return it.is_at_same_address(wanted); });
}

}  // namespace

Endpoint::Endpoint(const sockaddr* address) {
  const std::size_t size =
      address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(&storage_, address, size);
}

socklen_t Endpoint::size() const {
  return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

std::uint16_t Endpoint::port() const {
  return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port
                                    : reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
}

void Endpoint::set_port(std::uint16_t port) {
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(storage_).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(storage_).sin_port = htons(port);
  }
}

bool Endpoint::operator==(const Endpoint& other) const {
  return std::memcmp(&storage_, &other.storage_, sizeof storage_) == 0;
}

bool Endpoint::is_at_same_address(const Endpoint& other) const {
  Endpoint moved = other;
  moved.set_port(port());
  return *this == moved;
}

bool Endpoint::is_loopback() const {
  if (family() == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr) >> 24 == 127;
}

bool Endpoint::is_link_local() const {
  if (family() == AF_INET6)
    return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr) >> 16 == 0xa9fe;
}

std::string Endpoint::to_string() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (family() == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr, text.data(),
              text.size());
    return fmt::format("[{}]:{}", text.data(), port());
  }
  inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage_).sin_addr, text.data(),
            text.size());
  return fmt::format("{}:{}", text.data(), port());
}

void Endpoint::encode(ByteWriter& writer) const {
  const bool is_v6 = family() == AF_INET6;
  writer.number(static_cast<std::uint8_t>(is_v6 ? 6 : 4)).number(port());
  const void* const bytes =
      is_v6 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr)
            : &reinterpret_cast<const sockaddr_in&>(storage_).sin_addr;
  writer.blob({static_cast<const std::byte*>(bytes), is_v6 ? sizeof(in6_addr) : sizeof(in_addr)});
}

Result<Endpoint> Endpoint::decode(ByteReader& reader) {
  const auto version = reader.number<std::uint8_t>();
  const auto port = reader.number<std::uint16_t>();
  const auto bytes = reader.blob();
  Endpoint made;
  if (version == 6 && bytes.size() == sizeof(in6_addr)) {
    auto& to = reinterpret_cast<sockaddr_in6&>(made.storage_);
    to.sin6_family = AF_INET6;
    std::memcpy(&to.sin6_addr, bytes.data(), bytes.size());
  } else if (version == 4 && bytes.size() == sizeof(in_addr)) {
    auto& to = reinterpret_cast<sockaddr_in&>(made.storage_);
    to.sin_family = AF_INET;
    std::memcpy(&to.sin_addr, bytes.data(), bytes.size());
  } else {
    return Status(Code::kCorrupted, "malformed tcp address");
  }
  made.set_port(port);
  return made;
}

Result<std::vector<Endpoint>> interface_addresses(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return Status::from_errno("getifaddrs", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<Endpoint> found;
  bool is_known = interface.empty();
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (!interface.empty() && interface != at->ifa_name) continue;
    is_known = true;
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const Endpoint endpoint(at->ifa_addr);
    if (!endpoint.is_link_local()) found.push_back(endpoint);
  }
  if (!is_known) {
    return Status(Code::kUnavailable,
                  fmt::format("DUNLIN_TCP_INTERFACE: this host has no interface '{}'", interface));
  }
  if (found.empty()) {
    return Status(Code::kUnavailable,
                  interface.empty()
                      ? std::string("this host has no network interface with an IP address")
                      : fmt::format("DUNLIN_TCP_INTERFACE: '{}' has no IP address", interface));
  }
  std::stable_partition(found.begin(), found.end(),
                        [](const Endpoint& endpoint) { return !endpoint.is_loopback(); });
  return found;
}

std::optional<Endpoint> source_toward(const Endpoint& to) {
  const auto source = bootstrap::source_toward(to.address(), to.size());
  if (!source) return std::nullopt;
  Endpoint found(reinterpret_cast<const sockaddr*>(&*source));
  found.set_port(0);
  return found;
}

Bytes Address::encode() const {
  ByteWriter writer;
  writer.number(kWireVersion).number(token).number(cells);
  writer.number(static_cast<std::uint8_t>(wants_encryption)).text(host);
  writer.number(static_cast<std::uint32_t>(endpoints.size()));
  for (const Endpoint& endpoint : endpoints) endpoint.encode(writer);
  return writer.take();
}

Result<Address> Address::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto version = reader.number<std::uint8_t>();
  if (reader.ok() && version != kWireVersion) {
    return Status(Code::kUnavailable,
                  fmt::format("the peer uses version {} of the tcp wire format, not {}", version,
                              kWireVersion));
  }
  Address address;
  address.token = reader.number<std::uint64_t>();
  address.cells = reader.number<std::uint64_t>();
  address.wants_encryption = reader.number<std::uint8_t>() != 0;
  address.host = reader.text();
  const auto count = reader.number<std::uint32_t>();
  if (!reader.ok() || count > kMostEndpoints) {
    return Status(Code::kCorrupted, "malformed tcp address");
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    DUNLIN_ASSIGN(const Endpoint endpoint, Endpoint::decode(reader));
    address.endpoints.push_back(endpoint);
  }
  if (!reader.at_end()) return Status(Code::kCorrupted, "malformed tcp address");
  return address;
}

std::vector<Endpoint> Address::reachable_from(const std::string& own_host) const {
  std::vector<Endpoint> candidates;
  const bool has_others = std::any_of(endpoints.begin(), endpoints.end(),
                                      [](const Endpoint& it) { return !it.is_loopback(); });
  for (const Endpoint& endpoint : endpoints) {
    if (endpoint.is_loopback() && own_host != host && has_others) continue;
    if (source_toward(endpoint)) candidates.push_back(endpoint);
  }
  std::stable_partition(candidates.begin(), candidates.end(),
                        [](const Endpoint& endpoint) { return endpoint.is_loopback(); });
  return candidates;
}

std::vector<Endpoint> Address::facing(const Address& peer) const {
  std::vector<Endpoint> found;
  const auto add = [&](const Endpoint& endpoint) {
    if (contains(endpoints, endpoint) && !contains(found, endpoint)) found.push_back(endpoint);
  };
  const bool has_same_interfaces =
      std::all_of(peer.endpoints.begin(), peer.endpoints.end(),
                  [this](const Endpoint& it) { return contains(endpoints, it); });
  if (has_same_interfaces) {
    // Processes of one host use its loopback if they know that they are on one host.
    for (const Endpoint& endpoint : endpoints) {
      if (endpoint.is_loopback() == (host == peer.host)) add(endpoint);
    }
    return found.empty() ? endpoints : found;
  }
  for (const Endpoint& endpoint : peer.endpoints) {
    if (endpoint.is_loopback() || contains(endpoints, endpoint)) continue;
    if (const auto source = source_toward(endpoint)) add(*source);
  }
  return found;
}

}  // namespace dunlin::transport::tcp
