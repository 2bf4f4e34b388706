// The choice of the devices, ports and addresses that a process uses.
#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/config.h"
#include "runtime/pci.h"
#include "runtime/status.h"

namespace dunlin::transport::verbs {

class SocketAddress {
 public:
  // `ip`: an IPv4 address in dotted notation, or an IPv6 address that is valid beyond its link.
  static Result<SocketAddress> parse(const std::string& ip, std::uint16_t port);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage_); }

 private:
  sockaddr_storage storage_{};
};

// An active port, and the GID that connections are made from.
struct DeviceAddress {
  std::string device;  // "mlx5_0"
  int port = 1;
  int gid_index = 0;                       // with RoCE, the GID that stands for `ip`
  Proximity proximity = Proximity::kNode;  // to the Vicinity
  // An address of the port's network interface, IPv4 if it has one; empty if it has none that is
  // valid beyond its link.
  std::string ip;
};

// Which of two GIDs of a RoCE port to prefer: the smaller value. Those of IPv4 addresses come
// first, because hosts that have both kinds then agree. Then those of IPv6 addresses follow, and
// last those that are valid within their link only (fe80::/10).
enum class GidKind : std::uint8_t { kIpv4, kIpv6, kLinkLocal };
GidKind kind_of(const ibv_gid& gid);
// The IP address that the GID of a RoCE port is made of; empty for kLinkLocal.
std::string ip_of(const ibv_gid& gid);

// What ports should be near to: a GPU, as its folder in sysfs (runtime/pci.h), or, if empty, the
// calling thread.
using Vicinity = std::filesystem::path;

// The vicinity that the configuration asks for: the GPU whose number DUNLIN_VERBS_NEAR_GPU gives,
// or the GPU that is current in this thread. kUnavailable if there is no such GPU.
Result<Vicinity> find_vicinity(const Config& config);

// Finds the active InfiniBand and RoCE ports of this host. The nearest come first, and among
// equally near ones those with an IP address. kUnavailable says what is missing if there is none.
//
// `device` restricts the result, unless it is empty: NAME or NAME:PORT, or several of them with
// commas between. The ports then come in that order, and each name must have an active port.
// `gid_index` selects the GID; -1 takes each port's first GID of the best kind. RoCE v1's, which
// does not leave its Ethernet segment, is used only if it is selected.
Result<std::vector<DeviceAddress>> find_addresses(const std::string& device, int gid_index,
                                                  const Vicinity& vicinity);

// Returns the errno of opening a device's file ("uverbs0"), or `otherwise` if opening it works.
// libibverbs itself reports ENOENT for every cause.
int error_of_opening(const std::string& file, int otherwise);

// How many ports a process should use if there are that many: DUNLIN_VERBS_RAILS, or the number of
// names in DUNLIN_VERBS_DEVICE, or 1.
std::size_t rails_wanted(const Config& config);

// Chooses the ports for a process: the `rails` nearest, or fewer if there are not that many. If
// more ports are equally near, the processes of a host take turns, each with every n-th port. The
// order of the ports is then the same in all processes and on all equal hosts, as networks that are
// separate for each rail require. Ports that `device` names (see find_addresses()) count as equally
// near.
std::vector<DeviceAddress> choose(const std::vector<DeviceAddress>& addresses,
                                  const std::string& device, int local_rank, std::size_t rails);

}  // namespace dunlin::transport::verbs
