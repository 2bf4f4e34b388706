#include "transports/endpoint/blob.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "runtime/fnv.h"
#include "runtime/topology.h"
#include "transports/endpoint/constants.h"

namespace dunlin::transport::endpoint {
namespace {

constexpr std::uint32_t kMagic = 0x454e4c44;  // "DLNE" in memory
constexpr std::uint8_t kVersion = 1;

template <std::size_t kSize>
void append(Bytes& to, const std::array<std::byte, kSize>& bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

Bytes Blob::encode() const {
  ByteWriter head;
  head.number(kMagic).number(kVersion).number(static_cast<std::uint8_t>(addresses.size()));
  head.number(port);
  Bytes bytes = head.take();
  append(bytes, key);
  const Bytes fingerprint = ByteWriter().number(host).take();
  bytes.insert(bytes.end(), fingerprint.begin(), fingerprint.end());
  for (const auto& address : addresses) append(bytes, address);
  return bytes;
}

Result<Blob> Blob::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto magic = reader.number<std::uint32_t>();
  const auto version = reader.number<std::uint8_t>();
  const std::size_t count = reader.number<std::uint8_t>();
  Blob blob;
  blob.port = reader.number<std::uint16_t>();
  if (!reader.ok() || magic != kMagic)
    return Status(Code::kCorrupted,
                  fmt::format("these {} bytes are not the blob of an endpoint", bytes.size()));
  if (version != kVersion) {
    return Status(Code::kCorrupted,
                  fmt::format("the blob has version {}, this build has {}", version, kVersion));
  }
  for (std::byte& byte : blob.key) byte = std::byte{reader.number<std::uint8_t>()};
  blob.host = reader.number<std::uint64_t>();
  blob.addresses.resize(std::min(count, kMaxAddresses));
  for (auto& address : blob.addresses) {
    for (std::byte& byte : address) byte = std::byte{reader.number<std::uint8_t>()};
  }
  if (!reader.at_end() || count > kMaxAddresses || blob.port == 0)
    return Status(Code::kCorrupted,
                  fmt::format("the blob of an endpoint is truncated or damaged: it has {} bytes",
                              bytes.size()));
  return blob;
}

std::vector<std::string> Blob::hosts() const {
  std::vector<std::string> found;
  if (host == host_fingerprint()) found.emplace_back("127.0.0.1");
  for (const auto& address : addresses) {
    char text[INET_ADDRSTRLEN];
    if (inet_ntop(AF_INET, address.data(), text, sizeof text) != nullptr) found.emplace_back(text);
  }
  return found;
}

std::uint64_t host_fingerprint() {
  const std::string kernel = host_identity("");
  struct stat network {};
  if (stat("/proc/self/ns/net", &network) != 0) network.st_ino = 0;
  return hash_of(fmt::format("{}/{}", kernel, network.st_ino));
}

}  // namespace dunlin::transport::endpoint
