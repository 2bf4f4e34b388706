#include <arpa/inet.h>
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tools/dunlin-info/rdma_device.h"
#include "tools/dunlin-info/sysfs.h"

namespace dunlin::tools {
namespace {

const char* type_of(std::uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_IB:
      return "IB";
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCE v1";
    case IBV_GID_TYPE_ROCE_V2:
      return "RoCE v2";
    default:
      return "unknown";
  }
}

const char* layer_of(const ibv_port_attr& port) {
  switch (port.link_layer) {
    case IBV_LINK_LAYER_INFINIBAND:
      return "InfiniBand";
    case IBV_LINK_LAYER_ETHERNET:
      return "Ethernet";
    default:
      return "unspecified";
  }
}

Json gids_of(ibv_context* context, int number, const ibv_port_attr& port) {
  Json found = Json::array();
  for (int index = 0; index < port.gid_tbl_len; ++index) {
    ibv_gid_entry entry{};
    // This fails for empty entries.
    if (ibv_query_gid_ex(context, static_cast<std::uint32_t>(number),
                         static_cast<std::uint32_t>(index), &entry, 0) != 0) {
      continue;
    }
    char text[INET6_ADDRSTRLEN] = "";
    char interface[IF_NAMESIZE] = "";
    inet_ntop(AF_INET6, entry.gid.raw, text, sizeof text);
    Json gid{{"index", index}, {"type", type_of(entry.gid_type)}, {"gid", text}};
    if (entry.ndev_ifindex != 0 && if_indextoname(entry.ndev_ifindex, interface) != nullptr)
      gid["interface"] = interface;
    found.push_back(std::move(gid));
  }
  return found;
}

// The kernel's text of width and rate: "100 Gb/sec (4X EDR)".
void add_speed(Json& json, const std::string& folder) {
  const auto rate = first_line(folder + "rate");
  if (!rate) return;
  json["speed_gbit_s"] = std::strtod(rate->c_str(), nullptr);
  const auto from = rate->find('(');
  const auto to = rate->find(')');
  if (from < to && to != std::string::npos) json["width"] = rate->substr(from + 1, to - from - 1);
}

// Adds "reason" and "remedy" for a port that the verbs transport cannot use, or not fully.
void add_refusal(Json& json, const ibv_device& device, const ibv_port_attr& port,
                 const std::string& interface) {
  const bool is_infiniband = port.link_layer == IBV_LINK_LAYER_INFINIBAND;
  const auto& gids = json["gids"];
  if (device.transport_type != IBV_TRANSPORT_IB) {
    json["reason"] = "the device is neither InfiniBand nor RoCE";
  } else if (port.state != IBV_PORT_ACTIVE) {
    json["reason"] = "the port is not active";
    if (!is_infiniband) {
      json["remedy"] = fmt::format("ip link set {} up; check the cable", interface);
    } else if (port.state == IBV_PORT_DOWN) {
      json["remedy"] = "check the cable and the switch";
    } else {
      json["remedy"] = "a subnet manager (opensm) has to run in the fabric";
    }
  } else if (!gids.empty() && std::all_of(gids.begin(), gids.end(), [](const Json& gid) {
               return gid["type"] == "RoCE v1";
             })) {
    json["reason"] = "the port has no GID of type RoCE v2, and RoCE v1 cannot be routed";
    json["remedy"] = "enable RoCE v2 in the settings of the device, if it supports that";
  } else {
    json["reason"] =
        "no connection manager: the port's network interface has no IPv4 address; connections are "
        "made through the bootstrap";
    json["remedy"] = is_infiniband ? "modprobe ib_ipoib, and give its interface (ib0) an address"
                                   : fmt::format("ip address add ADDRESS/LENGTH dev {}", interface);
  }
}

}  // namespace

Json rdma_port(const std::string& device, ibv_context* context, int number,
               const Addresses& usable) {
  Json json;
  ibv_port_attr port{};
  if (const int error = ibv_query_port(context, static_cast<std::uint8_t>(number), &port);
      error != 0) {
    json["reason"] = fmt::format("can't be asked: {}", std::strerror(error));
    return json;
  }
  const std::string folder = fmt::format("/sys/class/infiniband/{}/ports/{}/", device, number);
  json["state"] = ibv_port_state_str(port.state);
  json["link_layer"] = layer_of(port);
  json["active_mtu_bytes"] = 128 << port.active_mtu;
  add_speed(json, folder);
  if (port.link_layer == IBV_LINK_LAYER_INFINIBAND) json["lid"] = port.lid;
  json["gids"] = gids_of(context, number, port);
  const bool is_without_limits =
      std::any_of(usable.begin(), usable.end(), [&](const auto& address) {
        return address.device == device && address.port == number && !address.ip.empty();
      });
  if (!is_without_limits)
    add_refusal(json, *context->device, port,
                first_line(folder + "gid_attrs/ndevs/0").value_or("INTERFACE"));
  return json;
}

}  // namespace dunlin::tools
