#include "tools/dunlin-info/report.h"

#ifdef DUNLIN_HAVE_VERBS
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tools/dunlin-info/rdma_device.h"

namespace dunlin::tools {
namespace {

constexpr const char* kManager = "/dev/infiniband/rdma_cm";

void add_reason(Json& json, std::string_view reason, std::string_view remedy) {
  json["reason"] = reason;
  if (!remedy.empty()) json["remedy"] = remedy;
}

std::string names_in_the_kernel() {
  std::string names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", error))
    names += (names.empty() ? "" : ", ") + entry.path().filename().string();
  return names;
}

void explain_no_device(Json& json, const Status& status) {
  if (const std::string names = names_in_the_kernel(); !names.empty()) {
    add_reason(json, fmt::format("the kernel has {}, but libibverbs finds no device", names),
               "modprobe ib_uverbs; install the devices' user-space drivers (ibverbs-providers)");
  } else {
    add_reason(json, status.message(),
               "with an RDMA device: modprobe its driver (mlx5_ib, irdma, ...), ib_uverbs and "
               "rdma_ucm; without: modprobe rdma_rxe rdma_ucm, and `rdma link add rxe0 type rxe "
               "netdev eth0` makes one of an Ethernet interface");
  }
}

void explain_no_manager(Json& json, int error) {
  add_reason(json,
             fmt::format("no connection manager: {} cannot be opened: {}; connections are made "
                         "through the bootstrap, unless DUNLIN_VERBS_CONNECT requires it",
                         kManager, std::strerror(error)),
             error == EACCES || error == EPERM
                 ? "allow this user to read and write it (by a udev rule, or its group)"
                 : "modprobe rdma_ucm; start containers with --device=/dev/infiniband/rdma_cm");
}

Json in_json(const Addresses& addresses) {
  Json json = Json::array();
  for (const auto& [device, port, gid_index, proximity, ip] : addresses) {
    json.push_back({{"ip", ip},
                    {"device", device},
                    {"port", port},
                    {"gid_index", gid_index},
                    {"proximity", in_words(proximity)}});
  }
  return json;
}

std::string why_so_many(const Config& config, std::size_t ports, std::size_t rails) {
  if (config.verbs_rails != 0) {
    return fmt::format("DUNLIN_VERBS_RAILS asks for {}, and there are {}", config.verbs_rails,
                       ports);
  }
  if (rails > 1) return "DUNLIN_VERBS_DEVICE names them";
  return fmt::format(
      "the nearest of {} to {}; DUNLIN_VERBS_RAILS, or several names in "
      "DUNLIN_VERBS_DEVICE, would make it more",
      ports,
      config.verbs_near_gpu < 0 ? "this thread" : fmt::format("GPU {}", config.verbs_near_gpu));
}

// The rails that the first rank of this host would use. The other ranks take turns.
Json rails_in_json(const Addresses& addresses, const Config& config) {
  const auto chosen = transport::verbs::choose(addresses, config.verbs_device, 0,
                                               transport::verbs::rails_wanted(config));
  Json ports = Json::array();
  for (const auto& each : chosen)
    ports.push_back(fmt::format("{} port {}", each.device, each.port));
  const auto queue_pairs = chosen.size() * static_cast<std::size_t>(config.verbs_queue_pairs);
  return {{"ports", std::move(ports)},
          {"why", why_so_many(config, addresses.size(), chosen.size())},
          {"striping", queue_pairs == 1
                           ? "none: one port, one queue pair"
                           : fmt::format("puts of more than {} bytes, over {} queue pairs per peer",
                                         config.verbs_stripe_above, queue_pairs)}};
}

}  // namespace

Json rdma_report(const Config& config) {
  using transport::verbs::find_addresses;
  const auto gid_index = static_cast<int>(config.verbs_gid_index);
  const auto vicinity = transport::verbs::find_vicinity(config);
  const auto all = find_addresses("", -1, vicinity ? *vicinity : transport::verbs::Vicinity());
  const auto wanted = vicinity ? find_addresses(config.verbs_device, gid_index, *vicinity)
                               : Result<Addresses>(vicinity.status());
  Json json = Json::object();
  Json devices = rdma_devices(all ? *all : Addresses());
  if (devices.empty()) {
    explain_no_device(json, all.status());
  } else if (!wanted) {
    add_reason(json, wanted.status().message(),
               all ? "set DUNLIN_VERBS_DEVICE, DUNLIN_VERBS_GID_INDEX and DUNLIN_VERBS_NEAR_GPU "
                     "otherwise, or "
                     "not at all"
                   : "see the remedies of the ports below");
  } else if (access(kManager, R_OK | W_OK) != 0) {
    explain_no_manager(json, errno);
  }
  json["addresses"] = in_json(wanted ? *wanted : Addresses());
  if (wanted) json["rails"] = rails_in_json(*wanted, config);
  json["devices"] = std::move(devices);
  return json;
}

}  // namespace dunlin::tools

#else

namespace dunlin::tools {

Json rdma_report(const Config&) {
  return {{"reason", "this build has no libibverbs and librdmacm"},
          {"remedy", "install both (Debian: libibverbs-dev, librdmacm-dev) and build again"},
          {"addresses", Json::array()},
          {"devices", Json::object()}};
}

}  // namespace dunlin::tools
#endif
