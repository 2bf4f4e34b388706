// The address of a process: where its transport listens, and what a peer must know to connect to
// it. It travels through the bootstrap, which only members of the job can use.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/bytes.h"
#include "runtime/status.h"

namespace dunlin::transport::tcp {

// An IPv4 or IPv6 address with a port.
class Endpoint {
 public:
  Endpoint() = default;
  // `address` is a sockaddr_in or sockaddr_in6.
  explicit Endpoint(const sockaddr* address);

  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const;
  int family() const { return storage_.ss_family; }
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  bool is_loopback() const;
  bool is_link_local() const;
  // Text such as "10.0.0.1:4711" or "[2001:db8::1]:4711".
  std::string to_string() const;

  void encode(ByteWriter& writer) const;
  static Result<Endpoint> decode(ByteReader& reader);
  bool operator==(const Endpoint& other) const;
  // Whether both have the same address, whatever their ports.
  bool is_at_same_address(const Endpoint& other) const;

 private:
  sockaddr_storage storage_{};
};

// The addresses of this host's interfaces that are up, without ports: those of the interface with
// this name, or of all interfaces if the name is empty. The loopback addresses come last.
// Link-local addresses are left out, as they mean nothing on another host.
Result<std::vector<Endpoint>> interface_addresses(const std::string& interface);

// The address from which this host's kernel would send to `to`, without a port; nullopt if it has
// no route. Sends nothing.
std::optional<Endpoint> source_toward(const Endpoint& to);

struct Address {
  std::uint64_t token = 0;  // a random number of the transport, which distinguishes processes
  std::uint64_t cells = 0;  // of the notification board
  bool wants_encryption = true;
  std::string host;  // as host_identity() (runtime/topology.h)
  std::vector<Endpoint> endpoints;

  Bytes encode() const;
  static Result<Address> decode(std::span<const std::byte> bytes);

  // The endpoints that a process on the host with this identity should try, best first: those to
  // which its kernel has a route. The loopback addresses come first if the process is on the same
  // host; otherwise they are left out, unless there are no others. Sends nothing.
  std::vector<Endpoint> reachable_from(const std::string& own_host) const;

  // The endpoints at which this process should listen for connections of a peer with this address:
  // the loopback if both use the same interfaces of one host, and otherwise this host's ends of the
  // routes to the peer. The ports of `peer` do not matter. Sends nothing.
  std::vector<Endpoint> facing(const Address& peer) const;
};

}  // namespace dunlin::transport::tcp
