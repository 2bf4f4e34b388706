// Which device, port and address a process uses.
#pragma once

#include <netinet/in.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/config.h"
#include "runtime/pci.h"
#include "runtime/status.h"

namespace dunlin::transport::verbs {

class SocketAddress {
 public:
  // `ip`: IPv4 in numbers.
  static Result<SocketAddress> parse(const std::string& ip, std::uint16_t port);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage_); }

 private:
  sockaddr_storage storage_{};
};

// An active port, with the GID that connections are made from.
struct DeviceAddress {
  std::string device;  // "mlx5_0"
  int port = 1;
  int gid_index = 0;                       // with RoCE: of the GID that stands for `ip`
  Proximity proximity = Proximity::kNode;  // to the Vicinity
  std::string ip;                          // of the port's network interface; empty: it has none
};

// What ports are to be near to: a GPU, a folder of sysfs (pci.h); empty: the calling thread.
using Vicinity = std::filesystem::path;

// As DUNLIN_VERBS_NEAR_GPU says: the GPU of that number, or the one that this thread has made
// current. kUnavailable: there is no such GPU.
Result<Vicinity> find_vicinity(const Config& config);

// All that this host has of InfiniBand and RoCE, nearest first, those with IP addresses before
// those without; restricted to `device` ("", or NAME or NAME:PORT, or several, separated by commas,
// in the order of which they then come, and each of which has to have one) and `gid_index` (-1: per
// port, the first that has an IP address, else the first that leaves the network segment).
// kUnavailable says what is missing when there is none.
Result<std::vector<DeviceAddress>> find_addresses(const std::string& device, int gid_index,
                                                  const Vicinity& vicinity);

// The errno of opening a device's file ("uverbs0"); `otherwise` if that works. libibverbs says
// ENOENT whatever is the matter.
int error_of_opening(const std::string& file, int otherwise);

// How many ports a process is to use, as far as there are so many: DUNLIN_VERBS_RAILS, or as many
// as DUNLIN_VERBS_DEVICE names, or 1.
std::size_t rails_wanted(const Config& config);

// Those for a process, `rails` if there are so many: the nearest; of several that are equally near,
// the processes of a host take turns, each with every n-th, so that all of them, and those of
// hosts alike, have theirs in the same order, as networks have it that are separate for each rail.
// Named ones (as in find_addresses) count as equally near.
std::vector<DeviceAddress> choose(const std::vector<DeviceAddress>& addresses,
                                  const std::string& device, int local_rank, std::size_t rails);

}  // namespace dunlin::transport::verbs
