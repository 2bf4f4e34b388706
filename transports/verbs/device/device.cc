#include "transports/verbs/device/device.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "runtime/fd.h"
#include "runtime/gpu/cuda_driver.h"
#include "transports/verbs/constants.h"

namespace dunlin::transport::verbs {
namespace {

// An address in text; "" for those of IPv6 that are valid within their link only.
std::string text_of(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN];
  const void* bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  if (address.sa_family == AF_INET6) {
    const in6_addr& wide = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&wide)) return "";
    bytes = &wide;
  }
  return inet_ntop(address.sa_family, bytes, text, sizeof text) != nullptr ? text : "";
}

// The first IPv4 address of a network interface, otherwise its first IPv6 address that is valid
// beyond its link, or "".
std::string address_of_interface(unsigned index) {
  ifaddrs* list = nullptr;
  if (index == 0 || getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::string ipv6;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || if_nametoindex(each->ifa_name) != index) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::string text = text_of(*each->ifa_addr);
    if (family == AF_INET) return text;
    if (ipv6.empty()) ipv6 = std::move(text);
  }
  return ipv6;
}

// The network interface of a port, from sysfs; the GIDs of InfiniBand do not name it.
unsigned interface_of(const std::string& device, int port) {
  const std::filesystem::path folder = "/sys/class/infiniband/" + device + "/device/net";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    int found = -1;
    std::ifstream(entry.path() / "dev_port") >> found;
    if (found == port - 1) return if_nametoindex(entry.path().filename().c_str());
  }
  return 0;
}

// Splits a list at its commas.
std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream stream(list);
  for (std::string name; std::getline(stream, name, ',');) names.push_back(name);
  return names;
}

// The index of the first name in the list that stands for the port; nullopt if none does.
std::optional<std::size_t> place_of(const std::vector<std::string>& names,
                                    const std::string& device, int port) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return name == device || name == fmt::format("{}:{}", device, port);
  });
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

// Sorts ports: smaller is better.
auto preference(const DeviceAddress& address) {
  return std::pair(address.proximity, address.ip.empty());
}

Proximity proximity_of(const std::string& device, const Vicinity& vicinity) {
  const std::filesystem::path folder = "/sys/class/infiniband/" + device + "/device";
  return vicinity.empty() ? proximity_to_this_thread(folder) : proximity(folder, vicinity);
}

void add_port(std::vector<DeviceAddress>& found, const std::string& device, ibv_context* context,
              int port, int gid_index, Proximity proximity) {
  ibv_port_attr attributes{};
  if (ibv_query_port(context, static_cast<std::uint8_t>(port), &attributes) != 0 ||
      attributes.state != IBV_PORT_ACTIVE) {
    return;
  }
  const bool is_infiniband = attributes.link_layer == IBV_LINK_LAYER_INFINIBAND;
  const std::string port_ip =
      is_infiniband ? address_of_interface(interface_of(device, port)) : std::string();
  std::optional<DeviceAddress> best;
  GidKind best_kind{};
  for (int index = 0; index < attributes.gid_tbl_len; ++index) {
    if (gid_index >= 0 && index != gid_index) continue;
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context, static_cast<std::uint32_t>(port),
                         static_cast<std::uint32_t>(index), &entry, 0) != 0) {
      continue;
    }
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V1 && gid_index < 0) continue;
    // All GIDs of an InfiniBand port do, so the first one is taken.
    const GidKind kind = is_infiniband ? GidKind{} : kind_of(entry.gid);
    if (best && kind >= best_kind) continue;
    std::string ip = is_infiniband ? port_ip : ip_of(entry.gid);
    if (ip.empty() && !is_infiniband) ip = address_of_interface(entry.ndev_ifindex);
    best = DeviceAddress{device, port, index, proximity, std::move(ip)};
    best_kind = kind;
  }
  if (best) found.push_back(std::move(*best));
}

// Sorts the ports in the order of the list. A name without an active port is an error.
Status order_by_names(std::vector<DeviceAddress>& found, const std::vector<std::string>& names) {
  const auto place = [&](const DeviceAddress& one) {
    return place_of(names, one.device, one.port).value_or(names.size());
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const auto& one, const auto& other) { return place(one) < place(other); });
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::none_of(found.begin(), found.end(), [&](const auto& one) { return place(one) == i; }))
      return {Code::kUnavailable, fmt::format("no active port of '{}', which is one of {} RDMA "
                                              "devices that were named",
                                              names[i], names.size())};
  }
  return Status::ok();
}

}  // namespace

GidKind kind_of(const ibv_gid& gid) {
  in6_addr address{};
  std::memcpy(&address, gid.raw, sizeof address);
  if (IN6_IS_ADDR_V4MAPPED(&address)) return GidKind::kIpv4;
  return IN6_IS_ADDR_LINKLOCAL(&address) ? GidKind::kLinkLocal : GidKind::kIpv6;
}

std::string ip_of(const ibv_gid& gid) {
  const GidKind kind = kind_of(gid);
  if (kind == GidKind::kLinkLocal) return "";
  const bool is_ipv4 = kind == GidKind::kIpv4;
  constexpr std::size_t kPlaceOfIpv4 = 12;  // ::ffff:A.B.C.D
  char text[INET6_ADDRSTRLEN];
  const void* const bytes = gid.raw + (is_ipv4 ? kPlaceOfIpv4 : 0);
  return inet_ntop(is_ipv4 ? AF_INET : AF_INET6, bytes, text, sizeof text) != nullptr ? text : "";
}

Result<SocketAddress> SocketAddress::parse(const std::string& ip, std::uint16_t port) {
  SocketAddress parsed;
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(parsed.storage_);
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(parsed.storage_);
  if (inet_pton(AF_INET, ip.c_str(), &ipv4.sin_addr) == 1) {
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    return parsed;
  }
  parsed = {};
  if (inet_pton(AF_INET6, ip.c_str(), &ipv6.sin6_addr) != 1)
    return Status(Code::kCorrupted, fmt::format("'{}' is not an IP address", ip));
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(port);
  return parsed;
}

Result<Vicinity> find_vicinity(const Config& config) {
  const auto folder_of = [](const std::string& bus_id) {
    const Vicinity folder = std::filesystem::path("/sys/bus/pci/devices") / bus_id;
    return bus_id.empty() || !std::filesystem::exists(folder) ? Vicinity() : folder;
  };
  if (config.verbs_near_gpu < 0) return folder_of(current_gpu());
  const auto driver = load_cuda_driver();
  if (!driver) return Status(driver.status()).with_context("DUNLIN_VERBS_NEAR_GPU");
  const auto& gpus = (*driver)->devices();
  const auto number = static_cast<std::size_t>(config.verbs_near_gpu);
  if (number >= gpus.size()) {
    return Status(Code::kUnavailable,
                  fmt::format("DUNLIN_VERBS_NEAR_GPU={}: this process has {} GPUs, numbered from 0",
                              number, gpus.size()));
  }
  Vicinity found = folder_of(gpus[number].pci_bus_id);
  if (!found.empty()) return found;
  return Status(Code::kUnavailable,
                fmt::format("DUNLIN_VERBS_NEAR_GPU={}: the kernel has no PCI device '{}'", number,
                            gpus[number].pci_bus_id));
}

Result<std::vector<DeviceAddress>> find_addresses(const std::string& wanted, int gid_index,
                                                  const Vicinity& vicinity) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  if (list == nullptr && errno == ENOSYS)
    return Status(Code::kUnavailable, "the kernel has no RDMA (modules ib_uverbs, rdma_ucm)");
  if (list == nullptr) return Status::from_errno("ibv_get_device_list", errno);
  const std::unique_ptr<ibv_device*, decltype(&ibv_free_device_list)> owner(list,
                                                                            ibv_free_device_list);
  const std::vector<std::string> wanted_names = split(wanted);
  std::vector<DeviceAddress> found;
  std::string names;
  for (int i = 0; i < count; ++i) {
    const std::string name = ibv_get_device_name(list[i]);
    names += (names.empty() ? "" : ", ") + name;
    if (list[i]->transport_type != IBV_TRANSPORT_IB) {
      names += " (neither InfiniBand nor RoCE)";
      continue;
    }
    const std::unique_ptr<ibv_context, decltype(&ibv_close_device)> context(
        ibv_open_device(list[i]), ibv_close_device);
    if (!context) {
      const int error = error_of_opening(list[i]->dev_name, errno);
      names += fmt::format(" (cannot be opened: {})", std::strerror(error));
      continue;
    }
    ibv_device_attr attributes{};
    if (ibv_query_device(context.get(), &attributes) != 0) continue;
    for (int port = 1; port <= attributes.phys_port_cnt; ++port) {
      if (!wanted.empty() && !place_of(wanted_names, name, port)) continue;
      add_port(found, name, context.get(), port, gid_index, proximity_of(name, vicinity));
    }
  }
  if (count == 0) return Status(Code::kUnavailable, "this host has no RDMA device");
  if (found.empty()) {
    return Status(
        Code::kUnavailable,
        fmt::format("no active port{}{} among the RDMA devices {}",
                    wanted.empty() ? "" : " of '" + wanted + "'",
                    gid_index < 0 ? "" : fmt::format(" with a GID {}", gid_index), names));
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& one, const auto& other) {
    return preference(one) < preference(other);
  });
  if (wanted_names.size() > 1) DUNLIN_TRY(order_by_names(found, wanted_names));
  return found;
}

int error_of_opening(const std::string& file, int otherwise) {
  const Fd opened(open(("/dev/infiniband/" + file).c_str(), O_RDWR | O_CLOEXEC));
  return opened.is_open() ? otherwise : errno;
}

std::size_t rails_wanted(const Config& config) {
  if (config.verbs_rails != 0) return static_cast<std::size_t>(config.verbs_rails);
  return std::clamp<std::size_t>(split(config.verbs_device).size(), 1, kMostPorts);
}

std::vector<DeviceAddress> choose(const std::vector<DeviceAddress>& addresses,
                                  const std::string& device, int local_rank, std::size_t rails) {
  const bool are_named = split(device).size() > 1;
  const auto alike = static_cast<std::size_t>(
      std::count_if(addresses.begin(), addresses.end(), [&](const auto& address) {
        return are_named || preference(address) == preference(addresses.front());
      }));
  rails = std::min(rails, addresses.size());
  const std::size_t step = std::max<std::size_t>(1, alike / rails);
  const std::size_t first = static_cast<std::size_t>(local_rank) % step;
  std::vector<DeviceAddress> chosen;
  for (std::size_t i = 0; i < rails; ++i) chosen.push_back(addresses[first + i * step]);
  return chosen;
}

}  // namespace dunlin::transport::verbs
